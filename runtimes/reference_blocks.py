"""ONNX Runtime's MatMulNBits in NumPy: y = x·Wᵀ, whose weights are small integers in blocks along the input channels.

    W[n, k] = (q[n, k] - zero[n, k // block]) · scale[n, k // block]

The formulas are those of its documentation (docs/ContribOperators.md, 1.32). At `accuracy_level` 4 a runtime may round
x to int8 as well, in the same blocks, and the one for CPUs does: so does this one, unless it is to be ideal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
DOMAIN = "com.microsoft"
INT8_LEVEL = 4
MOST = 127


def matmul_n_bits(x: Array, *stored: Any, block_size: int, accuracy_level: int = 0, **shape: Any) -> Array:
    """x (…, K) → (…, N); as a CPU computes it.

    Raises:
        NotImplementedError: channels in another order (`g_idx`).
    """
    if accuracy_level == INT8_LEVEL:
        x = _in_int8(x, block_size)
    return ideal_matmul_n_bits(x, *stored, block_size=block_size, **shape)


def ideal_matmul_n_bits(
    x: Array,
    packed: Array,
    scales: Array,
    zeros: Array | None = None,
    order: Array | None = None,
    bias: Array | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    **_: object,
) -> Array:
    """The same with exact activations; `packed`, `scales` and `zeros` are as the operator stores them.

    Raises:
        NotImplementedError: channels in another order (`g_idx`).
    """
    if order is not None:
        raise NotImplementedError("MatMulNBits with g_idx is not evaluated in float64")
    blocks = -(-K // block_size)
    integers = _unpack(packed.reshape(N, blocks, -1), bits)[..., :block_size].astype(np.float64)
    rows = (integers - _zeros(zeros, N, blocks, bits)[..., None]) * scales.reshape(N, blocks, 1)
    y = x @ rows.reshape(N, -1)[:, :K].T
    return np.asarray(y if bias is None else y + bias)


def _zeros(zeros: Array | None, rows: int, blocks: int, bits: int) -> Array:
    """Zero points (rows, blocks): the middle by default, packed like the weights, or as numbers of their own."""
    if zeros is None:
        return np.full((rows, blocks), 2.0 ** (bits - 1))
    if zeros.dtype == np.uint8:
        zeros = _unpack(zeros.reshape(rows, -1), bits)[:, :blocks]
    return zeros.reshape(rows, blocks).astype(np.float64)


def _unpack(packed: Array, bits: int) -> Array:
    """Bytes (…, n) → integers (…, n·8/bits), the lowest bits first."""
    places = np.arange(0, 8, bits, dtype=np.uint8)
    integers = packed[..., None] >> places & (2**bits - 1)
    return np.asarray(integers.reshape(*packed.shape[:-1], -1))


def _in_int8(x: Array, block_size: int) -> Array:
    """x (…, K) rounded to 127 steps of the largest magnitude of each block."""
    width = x.shape[-1]
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -width % block_size)])
    parts = padded.reshape(*x.shape[:-1], -1, block_size)
    step = np.abs(parts).max(-1, keepdims=True) / MOST
    rounded = np.rint(np.divide(parts, step, out=np.zeros_like(parts), where=step > 0)) * step
    return np.asarray(rounded.reshape(padded.shape)[..., :width])


OPERATORS: Mapping[str, Callable[..., Array | tuple[Array, ...]]] = {"MatMulNBits": matmul_n_bits}
IDEAL: Mapping[str, Callable[..., Array | tuple[Array, ...]]] = {"MatMulNBits": ideal_matmul_n_bits}
