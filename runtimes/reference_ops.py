"""The operators that the ONNX reference evaluator refuses in double, computes in float32, gets wrong, or loops over.

Each is a plain NumPy function: inputs by position (None where an optional one is absent), attributes by keyword, one
array or a tuple of outputs. The formulas are those of the ONNX operator documentation. `operators()` turns them into
`OpRun` classes for `ReferenceEvaluator(new_ops=…)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import reference_blocks as blocks
from . import reference_fused as fused
from . import reference_quantised as quantised
from .reference_attention import attention
from .reference_recurrent import gru, lstm, rnn

Array = NDArray[Any]


def erf(x: Array) -> Array:
    """The error function. (The reference calls `math.erf` for each element and stores float32.)"""
    from scipy import special

    return np.asarray(special.erf(x))


def gelu(x: Array, *, approximate: str) -> Array:
    """x·Φ(x) [Hendrycks & Gimpel 2016] or its tanh approximation. (The reference expands it with float32 constants.)"""
    if approximate == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x))))
    return np.asarray(0.5 * x * (1 + erf(x / sqrt(2))))


def hard_swish(x: Array) -> Array:
    """x·min(max(x/6 + 1/2, 0), 1) [Howard et al. 2019]. (The reference expands it with 1/6 in float32.)"""
    return x * np.clip(x / 6 + 0.5, 0, 1)


def log_softmax(x: Array, *, axis: int) -> Array:
    """x - max - log Σ exp(x - max). (The reference takes the log of a softmax, which is -inf below exp(-745).)"""
    shifted = x - x.max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))


def layer_normalization(
    x: Array, scale: Array, bias: Array | None = None, *, axis: int, epsilon: float, stash_type: int
) -> tuple[Array, Array, Array]:
    """(x - mean) / √(var + ε) · scale + bias, with mean and 1/√(var + ε) [Ba et al. 2016].

    `stash_type` names the precision of the statistics; here it is float64 whatever it says. (The reference refuses a
    stash in double.)
    """
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = x.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(x.var(axes, keepdims=True) + epsilon)
    y = (x - mean) * inverse * scale
    return y if bias is None else y + bias, mean, inverse


def rms_normalization(x: Array, scale: Array, *, axis: int, epsilon: float, stash_type: int) -> Array:
    """x / √(mean(x²) + ε) · scale [Zhang & Sennrich 2019]; `stash_type` as in `layer_normalization`."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    return np.asarray(x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon) * scale)


def gather_elements(data: Array, indices: Array, *, axis: int) -> Array:
    """out[i][j] = data[indices[i][j]][j] for axis 0. (The reference fails beyond 64 elements along the axis.)"""
    axis %= data.ndim
    window = tuple(slice(None) if a == axis else slice(size) for a, size in enumerate(indices.shape))
    return np.take_along_axis(data[window], indices, axis)


def gather_nd(data: Array, indices: Array, *, batch_dims: int) -> Array:
    """data[indices], the last axis of `indices` holding an index tuple. (The reference loops over the tuples.)"""
    rank = indices.ndim - 1
    batch = np.ix_(*(np.arange(size) for size in indices.shape[:batch_dims]))
    spread = tuple(grid.reshape(grid.shape + (1,) * (rank - batch_dims)) for grid in batch)
    return np.asarray(data[spread + tuple(np.moveaxis(indices, -1, 0))])


_REDUCE: Mapping[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def scatter_nd(data: Array, indices: Array, updates: Array, *, reduction: str) -> Array:
    """A copy of `data` with data[indices] = updates, or reduced with it. (The reference loops over the updates.)"""
    return _write(data, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


def scatter_elements(data: Array, indices: Array, updates: Array, *, axis: int, reduction: str) -> Array:
    """A copy of `data` with data[indices[i][j]][j] = updates[i][j] for axis 0, or reduced with it."""
    place: list[Array] = list(np.indices(indices.shape, sparse=True))
    place[axis] = indices
    return _write(data, tuple(place), updates, reduction)


def _write(data: Array, place: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    result = data.copy()
    if reduction == "none":
        result[place] = updates
    else:
        _REDUCE[reduction].at(result, place, updates)
    return result


def _in_float32(*_: Array, **__: object) -> Array:
    raise NotImplementedError("the ONNX reference computes it in float32 whatever its inputs are")


_OPERATORS: Mapping[str, Callable[..., Array | tuple[Array, ...]]] = {
    "Attention": attention,
    "CausalConvWithState": _in_float32,
    "Erf": erf,
    "GRU": gru,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Gelu": gelu,
    "GridSample": _in_float32,
    "GroupNormalization": _in_float32,
    "HardSwish": hard_swish,
    "LSTM": lstm,
    "LayerNormalization": layer_normalization,
    "LinearAttention": _in_float32,
    "LogSoftmax": log_softmax,
    "RMSNormalization": rms_normalization,
    "RNN": rnn,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
}


@cache
def operators(*, ideal: bool = False) -> tuple[type, ...]:
    """One `onnx.reference.op_run.OpRun` class for each operator of this file; `ideal`: and quantised ones unrounded."""
    from onnx.reference.op_run import OpRun

    standard = {**_OPERATORS, **(quantised.OPERATORS if ideal else {})}
    contrib = {**fused.OPERATORS, **(blocks.IDEAL if ideal else blocks.OPERATORS)}
    return tuple(
        type(name, (OpRun,), {"op_domain": domain, "_run": _method(function)})
        for domain, functions in (("", standard), (fused.DOMAIN, contrib))
        for name, function in functions.items()
    )


def _method(function: Callable[..., Array | tuple[Array, ...]]) -> Callable[..., tuple[Array, ...]]:
    """`OpRun._run` of a function: the result has to be a tuple, and float attributes need a reading in float64.

    ONNX keeps them in float32. The shortest decimal that rounds to it is what the author wrote: ε = 1e-5, and not
    9.99999974e-6, which in a normalization of small values (std 0.02) is a distance of 1e-9.
    """

    def _run(self: object, *inputs: Array | None, **attributes: Any) -> tuple[Array, ...]:
        read = {key: float(str(value)) if isinstance(value, np.float32) else value for key, value in attributes.items()}
        outputs = function(*inputs, **read)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    return _run
