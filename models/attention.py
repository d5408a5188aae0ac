"""Attention: multi-head, grouped-query and multi-query softmax attention, and cross-attention.

Shapes: B batch, m new tokens, p past tokens, t = p + m keys, H heads, G kv_heads, D head_dim.

A mixer is a module with two methods. `plan(mask, tokens)` computes once a call what all layers share (masks and
indices) from `mask` (B, t), where 1 marks a real token. `forward(x, plan, rotate, past)` mixes `x` (B, m, dim) and
returns the result with the layer's new cache. A causal token always sees itself, also where it is padding: so no row is
without a key, and no output depends on what a runtime makes of an empty softmax.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import CacheTensor, ConfigError, Rotate
from .norm import NO_NORM

if TYPE_CHECKING:
    from .config import ModelConfig, Norm, Sizes

Plan = Any  # what a mixer's `plan` makes for its own `forward`
Cache = tuple[Tensor, ...]  # key and value, each (B, G, p, D); empty where there is no past


@dataclass(frozen=True)
class Softmax:
    """softmax(Q·Kᵀ/√D)·V over all keys (Vaswani et al. 2017, section 3.2).

    `kv_heads` below heads shares each key and value head among a group of query heads (GQA, Ainslie et al. 2023);
    1 is multi-query attention (Shazeer 2019); None is one for each query head. With 4 heads and 2 kv_heads:

        queries   0  1  2  3
        keys      0  0  1  1

    `scale` replaces 1/√D. `softcap` bends scores to ±cap (Gemma 2). `qk_norm` normalises each query and key head before
    it is rotated (Qwen 3; Henry et al. 2020).
    """

    kv_heads: int | None = None
    scale: float | None = None
    softcap: float | None = None
    qk_norm: Norm = NO_NORM

    @property
    def general_tokens(self) -> int:
        """Any length but one."""
        return 2

    def check(self, config: ModelConfig) -> None:
        """Groups must be of equal size."""
        kv_heads = self.groups(config.heads)
        if kv_heads < 1 or config.heads % kv_heads:
            raise ConfigError(f"{config.name}: kv_heads {kv_heads} does not divide heads {config.heads}")

    def groups(self, heads: int) -> int:
        """Key and value heads for this many query heads."""
        return heads if self.kv_heads is None else self.kv_heads

    def build(self, config: ModelConfig, *, causal: bool) -> nn.Module:
        """The attention layer."""
        return Attention(config, self, causal=causal)

    def flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """Projections and the full score matrix: the mask hides half of it but nothing is skipped."""
        return self.projection_flops(config, queries) + 4 * config.heads * config.head_dim * queries * keys

    def projection_flops(self, config: ModelConfig, tokens: int) -> int:
        """Q, K, V and O for this many tokens."""
        return 4 * tokens * config.dim * config.head_dim * (config.heads + self.groups(config.heads))

    def cache(self, config: ModelConfig) -> tuple[CacheTensor, ...]:
        """Keys and values of all past tokens: 2·kv_heads·head_dim numbers a token and layer."""
        shape = ("batch", self.groups(config.heads), "past", config.head_dim)
        return CacheTensor("key", shape), CacheTensor("value", shape)

    def scaled(self, before: ModelConfig, after: Sizes) -> Softmax:
        """The group size stays."""
        if self.kv_heads is None:
            return self
        return replace(self, kv_heads=max(1, self.kv_heads * after.heads // before.heads))


class Attention(nn.Module):
    """Softmax attention over all keys."""

    def __init__(self, config: ModelConfig, spec: Softmax, *, causal: bool) -> None:
        super().__init__()
        kv_heads = spec.groups(config.heads)
        width = config.heads * config.head_dim
        self.head_dim = config.head_dim
        self.causal = causal
        self.scale = spec.scale
        self.softcap = spec.softcap
        self.grouped = kv_heads != config.heads
        self.q = nn.Linear(config.dim, width, bias=config.biases.qkv)
        self.k = nn.Linear(config.dim, kv_heads * config.head_dim, bias=config.biases.qkv)
        self.v = nn.Linear(config.dim, kv_heads * config.head_dim, bias=config.biases.qkv)
        self.o = nn.Linear(width, config.dim, bias=config.biases.out)
        self.q_norm, self.k_norm = spec.qk_norm.build(config.head_dim), spec.qk_norm.build(config.head_dim)

    def plan(self, mask: Tensor, tokens: int, bias: Tensor | None = None) -> Plan:
        """Which keys each query may see: bool (B, 1, m, t); with a bias, it and -inf where a key is hidden."""
        allowed = reachable(mask, tokens, causal=self.causal)
        return allowed if bias is None else bias.masked_fill(~allowed, -torch.inf)

    def forward(self, x: Tensor, plan: Plan, rotate: Rotate, past: Cache) -> tuple[Tensor, Cache]:
        """x (B, m, dim) → (B, m, dim), with the keys and values of past and new tokens, each (B, G, t, D)."""
        q = rotate(self.q_norm(self.split(self.q(x))))  # B, H, m, D
        k, v = rotate(self.k_norm(self.split(self.k(x)))), self.split(self.v(x))  # B, G, m, D
        if past:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)  # B, G, t, D
        y = self.attend(q, k, v, plan)  # B, H, m, D
        return self.o(y.transpose(1, 2).flatten(2)), (k, v)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
        """softmax(scale·q·kᵀ)·v under the mask: (B, H, m, D)."""
        if self.softcap is None:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=plan, scale=self.scale, enable_gqa=self.grouped)
        return capped_attention(q, k, v, plan, self.scale, self.softcap)

    def split(self, x: Tensor) -> Tensor:
        """(B, m, heads·D) → (B, heads, m, D)."""
        return torch.unflatten(x, 2, (-1, self.head_dim)).transpose(1, 2)


def capped_attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, scale: float | None, cap: float) -> Tensor:
    """Attention whose scores are bent to ±cap by cap·tanh(s/cap), and masked after that (Gemma 2, section 2)."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = cap * torch.tanh(scaled(q, scale) @ k.transpose(2, 3) / cap)
    return scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ v


def scaled(q: Tensor, scale: float | None) -> Tensor:
    """Queries times the scale, or over √D: a root taken in the call, since a graph rounds constants to float32."""
    return q / torch.full_like(q[..., :1], q.shape[-1]).sqrt() if scale is None else q * scale


def distances(mask: Tensor, tokens: int) -> Tensor:
    """How far each key of `mask` (B, t) lies before each of the last `tokens` tokens: (m, t), 0 for itself."""
    keys = mask.shape[1]
    index = torch.arange(keys, device=mask.device)
    return index[keys - tokens :, None] - index


def reachable(mask: Tensor, tokens: int, *, causal: bool) -> Tensor:
    """The keys that each of the last `tokens` tokens sees: bool (B, 1, m, t)."""
    allowed = visible(mask, tokens)
    if not causal:
        return allowed
    gap = distances(mask, tokens)
    return allowed & (gap >= 0) | (gap == 0)


def visible(mask: Tensor, tokens: int) -> Tensor:
    """The real keys of `mask` (B, t) for each query: bool (B, 1, m, t).

    Expanded over the queries because ONNX Runtime's Attention does not broadcast that axis of its mask.
    """
    return mask[:, None, None, :].bool().expand(-1, -1, tokens, -1)


class CrossAttention(Attention):
    """Queries from the decoder, keys and values from the encoder's output (Vaswani et al. 2017, section 3.2.3)."""

    def __init__(self, config: ModelConfig) -> None:
        own = config.mixers[0]  # scores are scaled as in self-attention: not at all in T5
        super().__init__(config, Softmax(scale=own.scale if isinstance(own, Softmax) else None), causal=False)

    def keys(self, source: Tensor) -> Cache:
        """Key and value of the encoder's output (B, s, dim), each (B, H, s, D): computed once a sequence."""
        return self.split(self.k(source)), self.split(self.v(source))

    def cross(self, x: Tensor, plan: Plan, keys: Cache) -> Tensor:
        """x (B, m, dim) → (B, m, dim)."""
        k, v = keys
        y: Tensor = self.o(self.attend(self.split(self.q(x)), k, v, plan).transpose(1, 2).flatten(2))
        return y
