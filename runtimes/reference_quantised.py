"""Quantised operators without their rounding: what a quantised graph would compute if its activations were exact.

Weights keep the values that the file holds. Whatever else differs from a runtime then is the error of quantising
activations, and what does not hold here (rows that see each other, say) is no matter of quantisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def dynamic_quantize_linear(x: Array) -> tuple[Array, Array, Array]:
    """x itself, with scale 1 and zero point 0."""
    return x.astype(np.float64), np.array(1.0), np.array(0.0)


def quantize_linear(x: Array, scale: Array, zero: Array | None = None, *, axis: int, **_: object) -> Array:
    """x / scale + zero, neither rounded nor cut off."""
    shift = 0.0 if zero is None else _along(zero.astype(np.float64), x, axis)
    return np.asarray(x / _along(scale, x, axis) + shift)


def dequantize_linear(x: Array, scale: Array, zero: Array | None = None, *, axis: int, **_: object) -> Array:
    """(x - zero)·scale."""
    shift = 0.0 if zero is None else _along(zero.astype(np.float64), x, axis)
    return np.asarray((x.astype(np.float64) - shift) * _along(scale, x, axis))


def matmul_integer(a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
    """(a - a_zero)·(b - b_zero) in float64; a zero point of rank 1 goes by rows of a and by columns of b."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    if a_zero is not None:
        left = left - (a_zero[:, None] if a_zero.ndim == 1 and a_zero.size > 1 else a_zero)
    if b_zero is not None:
        right = right - b_zero
    return np.asarray(left @ right)


def _along(values: Array, x: Array, axis: int) -> Array:
    """A scale or zero point per channel, in the shape that spreads it along `axis`."""
    if values.ndim != 1 or values.size == 1:
        return values
    shape = [1] * x.ndim
    shape[axis] = values.size
    return values.reshape(shape)


OPERATORS: Mapping[str, Callable[..., Array | tuple[Array, ...]]] = {
    "DequantizeLinear": dequantize_linear,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    "MatMulInteger": matmul_integer,
    "QuantizeLinear": quantize_linear,
}
