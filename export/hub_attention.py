"""Attention of transformers' models as one operator, under masks that leave no row empty."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

ATTENTION = "isorun"


def register() -> None:
    """Make the attention below known to transformers under its name."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, _mask)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention that exports to one operator: queries (B, H, m, D), keys (B, G, t, D) → (B, m, H, D).

    Keys are not repeated for the queries of their group, and a scale of 1/√D is left to the operator, which has it
    exactly.
    """
    from transformers.integrations import sdpa_attention

    if attention_mask is None or position_bias is not None:
        if position_bias is not None:
            options["position_bias"] = position_bias
        attend: Any = sdpa_attention.sdpa_attention_forward
        result: tuple[Tensor, None] = attend(module, query, key, value, attention_mask, scaling=scaling, **options)
        return result
    y = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        scale=None if scaling == query.shape[-1] ** -0.5 else scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return y.transpose(1, 2), None


def _mask(
    *sizes: Any, allow_is_causal_skip: bool = True, allow_is_bidirectional_skip: bool = True, **options: Any
) -> Tensor:
    """The mask of transformers, bool (B, 1, m, t), never left out and with no row empty.

    A token that may see nothing (padding on the left) sees everything: runtimes disagree about a softmax over nothing.
    """
    from transformers import masking_utils

    make: Any = masking_utils.sdpa_mask
    mask: Tensor = make(*sizes, allow_is_causal_skip=False, allow_is_bidirectional_skip=False, **options)
    return mask | ~mask.any(-1, keepdim=True)
