"""The ONNX operator Attention (opsets 23 to 25) in NumPy.

    b batch · h query heads · g key/value heads (h = g·group) · n queries · m keys, past ones first · d head dim

Query `i` stands at position `i + offset`, where `offset` counts the keys before the block of queries. Masks add up to
one bias: 0 where a key may be seen, -inf where not. A query that may see no key gives a row of zeros, not NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_AFTER_BIAS = 2  # qk_matmul_output_mode: 0 raw scores, 1 after softcap, 2 after bias, 3 after softmax


def attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    scale: float | None,
    is_causal: int,
    q_num_heads: int | None,
    kv_num_heads: int | None,
    softcap: float,
    qk_matmul_output_mode: int,
    softmax_precision: int | None,
    left_window_size: int,
    right_window_size: int,
) -> tuple[Array, Array, Array, Array]:
    """softmax(softcap(QKᵀ·scale) + bias)·V, with the present keys and values and the scores at the stage asked for.

    Q, K, V are (b, heads, n, d) or (b, n, heads·d); the output has the rank of Q. `softmax_precision` changes nothing:
    all of it is float64.
    """
    q = _split_heads(query, q_num_heads)  # (b, h, n, d)
    k = _extend(past_key, _split_heads(key, kv_num_heads))  # (b, g, m, d)
    v = _extend(past_value, _split_heads(value, kv_num_heads))  # (b, g, m, dv)
    offset = _offset(q.shape[2], past_key, nonpad_kv_seqlen)
    seen = _positions_seen(q.shape[2], k.shape[2], offset, is_causal, left_window_size, right_window_size)
    if nonpad_kv_seqlen is not None:
        seen = seen & (np.arange(k.shape[2]) < nonpad_kv_seqlen.reshape(-1, 1, 1, 1))
    bias = _bias(seen, mask)

    raw = _grouped_matmul(q * (q.shape[-1] ** -0.5 if scale is None else scale), k.swapaxes(-1, -2))  # (b, h, n, m)
    capped = softcap * np.tanh(raw / softcap) if softcap else raw
    biased = capped + bias
    weights = _softmax(biased.copy() if qk_matmul_output_mode == _AFTER_BIAS else biased)
    y = _grouped_matmul(weights, v)  # (b, h, n, dv)
    if query.ndim == 3:
        y = y.swapaxes(1, 2).reshape(*query.shape[:2], y.shape[1] * y.shape[3])
    return y, k, v, (raw, capped, biased, weights)[qk_matmul_output_mode]


def _split_heads(x: Array, heads: int | None) -> Array:
    """(b, n, heads·d) -> (b, heads, n, d); four axes stay as they are."""
    if x.ndim == 4:
        return x
    if not heads:
        raise ValueError("Q, K, V with three axes need q_num_heads and kv_num_heads")
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).swapaxes(1, 2)


def _extend(past: Array | None, new: Array) -> Array:
    return new if past is None else np.concatenate((past, new), axis=2)


def _offset(queries: int, past_key: Array | None, nonpad_kv_seqlen: Array | None) -> Array:
    """The number of keys before the first query: of the past, or of a cache kept outside, for each row of the batch."""
    if past_key is not None:
        return np.array(past_key.shape[2])
    if nonpad_kv_seqlen is not None:
        return nonpad_kv_seqlen.reshape(-1, 1, 1, 1) - queries
    return np.array(0)


def _positions_seen(queries: int, keys: int, offset: Array, causal: int, left: int, right: int) -> Array:
    """Which query may see which key by position alone: (n, m) or (b, 1, n, m); a window of -1 has no end."""
    distance = np.arange(queries)[:, None] + offset - np.arange(keys)  # > 0: the key lies in the query's past
    seen = np.ones(distance.shape, np.bool_)
    if causal:
        seen &= distance >= 0
    if left >= 0:
        seen &= distance <= left
    if right >= 0:
        seen &= -distance <= right
    return seen


def _bias(seen: Array, mask: Array | None) -> Array:
    """The additive bias of positions and mask; a boolean mask says which keys to see, a float mask is added.

    A mask that is shorter than the keys hides the rest (opset 24); one of length 1 is broadcast.
    """
    bias = np.where(seen, 0.0, -np.inf)
    if mask is None:
        return bias
    added = np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else mask
    missing = bias.shape[-1] - added.shape[-1]
    if added.shape[-1] > 1 and missing > 0:
        added = np.pad(added, [(0, 0)] * (added.ndim - 1) + [(0, missing)], constant_values=-np.inf)
    return np.asarray(bias + added)


def _grouped_matmul(a: Array, b: Array) -> Array:
    """(b, h, n, k) @ (b, g, k, m) -> (b, h, n, m): query head i uses head i // (h/g), without repeating that head."""
    batch, heads, rows, inner = a.shape
    groups = b.shape[1]
    stacked = a.reshape(batch, groups, heads // groups * rows, inner)
    return np.asarray(stacked @ b).reshape(batch, heads, rows, b.shape[-1])


def _softmax(logits: Array) -> Array:
    """Softmax over the keys, in place; a row that is -inf throughout becomes zero."""
    peak = logits.max(-1, keepdims=True, initial=-np.inf)
    np.exp(np.subtract(logits, np.where(np.isneginf(peak), 0, peak), out=logits), out=logits)
    total = logits.sum(-1, keepdims=True)
    logits /= np.where(total == 0, 1, total)
    return logits
