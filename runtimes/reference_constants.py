"""Constants as their author meant them: a graph keeps 1/√2 in float32, where the source computed it in double.

Such a constant is off by 3e-8 at most, and so is what it touches: more than the 1e-9 that separate one function from
another, and yet the same function. With the exact constants in their place a graph shows whether this was all.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import isfinite, pi
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

DIGITS = 6  # a decimal that is this short was written by hand
DENOMINATOR = 256  # of the rational number below a root
FACTORS = (1.0, pi, 1 / pi)
ROOTS = (1, 2, 4)


def sharpened(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy in which scalars stored in float32 have their exact values in double, or None without any such scalar.

    The copy is for evaluation in float64 alone: a double beside floats is no valid graph.
    """
    from onnx import helper, numpy_helper

    copy = type(model)()
    copy.CopyFrom(model)
    found = False
    for tensor in _scalars(copy):
        value = numpy_helper.to_array(tensor)
        better = exact(np.float32(value.flat[0]))
        if better is not None:
            tensor.CopyFrom(numpy_helper.from_array(np.full(value.shape, better), tensor.name))
            found = True
    for attribute in (a for node in copy.graph.node if node.op_type == "Constant" for a in node.attribute):
        better = exact(np.float32(attribute.f)) if attribute.name == "value_float" else None
        if better is not None:
            attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(np.array(better))))
            found = True
    return copy if found else None


def exact(value: np.float32) -> float | None:
    """A short decimal or (p/q·π^k)^(1/r) that rounds to a value in float32 and is not that value; None without one."""
    for candidate in _candidates(float(value)):
        if np.float32(candidate) == value:
            return candidate if candidate != float(value) else None
    return None


def _candidates(value: float) -> Iterator[float]:
    if not isfinite(value) or value == 0:
        return
    yield float(f"{value:.{DIGITS}g}")
    for root in ROOTS:
        for factor in FACTORS:
            ratio = Fraction(abs(value) ** root / factor).limit_denominator(DENOMINATOR)
            if ratio:
                yield float(np.copysign((float(ratio) * factor) ** (1 / root), value))


def _scalars(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Initializers and values of Constant nodes in float32 that hold one number."""
    values = (a.t for node in model.graph.node if node.op_type == "Constant" for a in node.attribute if a.HasField("t"))
    for tensor in (*model.graph.initializer, *values):
        if tensor.data_type == tensor.FLOAT and all(dim == 1 for dim in tensor.dims):
            yield tensor
