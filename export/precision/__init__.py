"""Precision: a traced float32 graph in another one, a family of conversions a file, and the error that it costs.

    fp32                                            as traced
    fp16, bf16               half.py                weights, activations and arithmetic
    int8                     integer.py             MatMul and Gemm, activations quantised call by call
    int8-weights, int4       blocks.py              weights alone, in blocks

Each takes an `onnx_ir.Model` and changes it in place. New weights are made when the file is written, one at a time, so
that a graph whose weights are themselves made on demand is never held in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from ...models.signature import Array
from ..artifact import DTYPES
from .blocks import to_blocks
from .evaluate import Unevaluable
from .half import to_half
from .integer import to_int8
from .kept import least_fill
from .scan import magnitudes
from .types import complete

HALVES = {"fp16": ir.DataType.FLOAT16, "bf16": ir.DataType.BFLOAT16}
BITS = {"int8-weights": 8, "int4": 4}


@dataclass(frozen=True)
class Quantisation:
    """How weights become integers: int8 by channel or by matrix; blocks of input channels at an accuracy level."""

    per_channel: bool = True
    block_size: int = 32
    accuracy_level: int = 4


DEFAULT = Quantisation()


def convert(
    model: ir.Model, dtype: str, feeds: Mapping[str, Array] | None = None, options: Quantisation = DEFAULT
) -> list[str]:
    """Convert a float32 model in place; the notes say what was done, and what stayed in float32 and why.

    `feeds` are example inputs of the float32 graph: half precision runs them to see how large values become.

    Raises:
        ValueError: an unknown dtype, or a block size that the operator does not have.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
    if dtype == "fp32":
        return []
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    complete(model)
    if dtype in HALVES:
        return _half(model, dtype, feeds)
    if dtype == "int8":
        return to_int8(model, per_channel=options.per_channel)
    return to_blocks(model, BITS[dtype], block_size=options.block_size, accuracy_level=options.accuracy_level)


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
