"""ONNX Runtime's own attention operators (domain com.microsoft, version 1) in NumPy, in float64.

Only what the passes of `export.passes` write: a node that asks for more is refused, never guessed. The formulas are
those of ONNX Runtime's operator documentation (docs/ContribOperators.md, 1.32).

    b batch · h query heads · g key/value heads · n new tokens · m keys, past ones first · d head dim
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .reference_attention import attention

Array = NDArray[Any]
DOMAIN = "com.microsoft"

# The inputs of GroupQueryAttention that follow the total length, and attributes whose default is not 0.
_FURTHER = (
    *("cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale"),
    *("q_norm_weight", "k_norm_weight", "query_seqlens"),
)
_USUAL: Mapping[str, object] = {"causal": 1, "local_window_size": -1, "k_quant_type": "NONE", "v_quant_type": "NONE"}


def group_query_attention(
    query: Array,
    key: Array,
    value: Array,
    past_key: Array | None,
    past_value: Array | None,
    seqlens_k: Array,
    total_sequence_length: Array,
    *further: Array | None,
    num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    softcap: float = 0.0,
    **others: object,
) -> tuple[Array, Array, Array]:
    """Causal softmax(softcap(QKᵀ·scale) + bias)·V with a cache: y (b, n, h·d), present keys and values (b, g, m, d).

    Every row has the same n new tokens behind the same past; a scale of 0 is 1/√d.

    Raises:
        NotImplementedError: anything else of the operator is used.
    """
    given = {name: array for name, array in zip(_FURTHER, further, strict=False) if array is not None}
    bias = given.pop("attention_bias", None)
    tokens = query.shape[1]
    total = tokens + (0 if past_key is None else past_key.shape[2])
    lengths = {
        "seqlens_k": (seqlens_k, total - 1),
        "total_sequence_length": (total_sequence_length, total),
        "query_seqlens": (given.pop("query_seqlens", np.array(tokens)), tokens),
    }
    wrong = [name for name, (array, whole) in lengths.items() if (array != whole).any()]
    wrong += [*given, *(name for name, setting in others.items() if setting != _USUAL.get(name, 0))]
    if wrong:
        raise NotImplementedError(f"GroupQueryAttention with this {', '.join(wrong)} is not evaluated in float64")
    heads: dict[str, Any] = {"q_num_heads": num_heads, "kv_num_heads": kv_num_heads}
    y, present_key, present_value, _ = attention(
        query,
        key,
        value,
        bias,
        past_key,
        past_value,
        is_causal=1,
        scale=scale or None,
        softcap=softcap,
        **heads,
        **_PLAIN,
    )
    return y, present_key, present_value


def multi_head_attention(
    query: Array,
    key: Array,
    value: Array,
    *further: Array | None,
    num_heads: int,
    scale: float = 0.0,
    **others: object,
) -> Array:
    """softmax(QKᵀ·scale)·V over all keys: y (b, n, h·dv); a scale of 0 is 1/√d, and values may have their own width.

    Keys and values are (b, m, h·d) or (b, h, m, d).

    Raises:
        NotImplementedError: anything else of the operator is used.
    """
    if any(array is not None for array in further) or any(others.values()):
        raise NotImplementedError("MultiHeadAttention with more than Q, K and V is not evaluated in float64")
    heads: dict[str, Any] = {"q_num_heads": num_heads, "kv_num_heads": num_heads}
    return attention(query, key, value, is_causal=0, scale=scale or None, softcap=0.0, **heads, **_PLAIN)[0]


# What the standard operator has and these have not.
_PLAIN: Mapping[str, Any] = {
    "qk_matmul_output_mode": 0,
    "softmax_precision": None,
    "left_window_size": -1,
    "right_window_size": -1,
}

OPERATORS: Mapping[str, Callable[..., Array | tuple[Array, ...]]] = {
    "GroupQueryAttention": group_query_attention,
    "MultiHeadAttention": multi_head_attention,
}
