"""Precision: a traced float32 graph in another one, a family of conversions a file, and the error that it costs.

    fp32                                            as traced
    fp16, bf16               half.py                weights, activations and arithmetic
    int8                     integer.py             MatMul and Gemm, activations quantised call by call
    int8-weights, int4       blocks.py              weights alone, in blocks
    … up to a drift          choice.py              which matrices stay in a higher precision

Each takes an `onnx_ir.Model` and changes it in place. New weights are made when the file is written, one at a time, so
that a graph whose weights are themselves made on demand is never held in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from ...models.signature import Array
from ..artifact import DTYPES
from .blocks import to_blocks
from .choice import HIGHER
from .evaluate import Unevaluable
from .half import to_half
from .integer import EXACT, to_int8
from .kept import least_fill
from .linear import matrices
from .scan import magnitudes
from .types import complete

HALVES = {"fp16": ir.DataType.FLOAT16, "bf16": ir.DataType.BFLOAT16}
BITS = {"fp32": 32, "int8-weights": 8, "int4": 4}


@dataclass(frozen=True)
class Quantisation:
    """How weights become integers: int8 by channel or by matrix; blocks of input channels at an accuracy level.

    `max_drift` is how far outputs may drift; matrices keep a higher precision until they do not drift further.
    """

    per_channel: bool = True
    block_size: int = 32
    accuracy_level: int = 4
    max_drift: float | None = None


DEFAULT = Quantisation()


def session(dtype: str) -> dict[str, str]:
    """The session options that a precision needs to be computed as it is meant."""
    return dict(EXACT) if dtype == "int8" else {}


def refuse_drift(dtype: str, max_drift: float | None) -> None:
    """Refuse a limit of drift where nothing is quantised, or one that is no number.

    Raises:
        ValueError: which it is.
    """
    if max_drift is not None and dtype not in HIGHER:
        raise ValueError(f"max drift {max_drift:g}: is for {', '.join(HIGHER)}, and dtype is {dtype!r}")
    if max_drift is not None and not math.isfinite(max_drift):
        raise ValueError(f"max drift {max_drift:g}: is not a finite number")


def quantisable(model: ir.Model) -> dict[str, str]:
    """The matrices of a float32 model that a quantised one has in integers: the layer of each by its name."""
    trial = model.clone()
    _prepare(trial)
    return {matrix.name: matrix.layer for matrix in matrices(trial)[0]}


def convert(
    model: ir.Model,
    dtype: str,
    feeds: Mapping[str, Array] | None = None,
    options: Quantisation = DEFAULT,
    kept: Mapping[str, str] | None = None,
) -> list[str]:
    """Convert a float32 model in place; the notes say what was done, and what stayed in float32 and why.

    `feeds` are example inputs of the float32 graph: half precision runs them to see how large values become. `kept`
    are the matrices (`quantisable`) of a quantised model that have another precision than the rest (`choice.HIGHER`).

    Raises:
        ValueError: an unknown dtype, or a block size that the operator does not have.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
    if dtype == "fp32":
        return []
    _prepare(model)
    if dtype in HALVES:
        return _half(model, dtype, feeds)
    if dtype == "int8":
        return to_int8(model, per_channel=options.per_channel, kept=kept or {})
    others = {name: BITS[higher] for name, higher in (kept or {}).items()}
    return to_blocks(
        model, BITS[dtype], block_size=options.block_size, accuracy_level=options.accuracy_level, others=others
    )


def _prepare(model: ir.Model) -> None:
    """Constants become initializers, and every value has its type."""
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    complete(model)


def _half(model: ir.Model, dtype: str, feeds: Mapping[str, Array] | None) -> list[str]:
    largest: dict[str, float] = {}
    scanned = "activations: not run, since no example inputs were given"
    if feeds is not None:
        try:
            largest = magnitudes(model, feeds)
            below = {name: size for name, size in largest.items() if size < least_fill(model, HALVES[dtype])}
            name = max(below, key=lambda name: below[name], default="")
            scanned = f"activations: the largest on example inputs is {below.get(name, 0):.4g} ({name})"
        except Unevaluable as error:
            scanned = f"activations: not run: {error}"
    return [scanned, *to_half(model, HALVES[dtype], largest)]
