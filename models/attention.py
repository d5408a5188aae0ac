"""Attention: multi-head, grouped-query and multi-query softmax attention, sliding window, cross-attention.

Shapes: B batch, m new tokens, p past tokens, t = p + m keys, H heads, G kv_heads, D head_dim, W window.

A mixer is a module with two methods. `plan(mask, tokens)` computes once a call what all layers share (masks and
indices) from `mask` (B, t), where 1 marks a real token. `forward(x, plan, rotate, past)` mixes `x` (B, m, dim) and
returns the result with the layer's new cache. A causal token always sees itself, also where it is padding: so no row is
without a key, and no output depends on what a runtime makes of an empty softmax.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import CacheTensor, ConfigError, Rotate

if TYPE_CHECKING:
    from .config import ModelConfig, Sizes

Plan = Any  # what a mixer's `plan` makes for its own `forward`
Cache = tuple[Tensor, ...]  # key and value, each (B, G, p, D); empty where there is no past


@dataclass(frozen=True)
class Softmax:
    """softmax(Q·Kᵀ/√D)·V over all keys (Vaswani et al. 2017, section 3.2).

    `kv_heads` below heads shares each key and value head among a group of query heads (GQA, Ainslie et al. 2023);
    1 is multi-query attention (Shazeer 2019); None is one for each query head. With 4 heads and 2 kv_heads:

        queries   0  1  2  3
        keys      0  0  1  1
    """

    kv_heads: int | None = None

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
        return Attention(config, self.groups(config.heads), causal=causal)

    def flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """Projections and the full score matrix: the mask hides half of it but nothing is skipped."""
        return self.projection_flops(config, queries) + 4 * config.dim * queries * keys

    def projection_flops(self, config: ModelConfig, tokens: int) -> int:
        """Q, K, V and O for this many tokens."""
        return 4 * tokens * config.dim * (config.dim + self.groups(config.heads) * config.head_dim)

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

    def __init__(self, config: ModelConfig, kv_heads: int, *, causal: bool) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.causal = causal
        self.q = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.k = nn.Linear(config.dim, kv_heads * config.head_dim, bias=config.bias)
        self.v = nn.Linear(config.dim, kv_heads * config.head_dim, bias=config.bias)
        self.o = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.grouped = kv_heads != config.heads

    def plan(self, mask: Tensor, tokens: int) -> Plan:
        """Which keys each query may see: bool (B, 1, m, t)."""
        real = visible(mask, tokens)
        if not self.causal:
            return real
        keys = mask.shape[1]
        gap = torch.arange(keys - tokens, keys, device=mask.device)[:, None] - torch.arange(keys, device=mask.device)
        return real & (gap >= 0) | (gap == 0)

    def forward(self, x: Tensor, plan: Plan, rotate: Rotate, past: Cache) -> tuple[Tensor, Cache]:
        """x (B, m, dim) → (B, m, dim), with the keys and values of past and new tokens, each (B, G, t, D)."""
        q = rotate(self.split(self.q(x)))  # B, H, m, D
        k, v = rotate(self.split(self.k(x))), self.split(self.v(x))  # B, G, m, D
        if past:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)  # B, G, t, D
        y = self.attend(q, k, v, plan)  # B, H, m, D
        return self.o(y.transpose(1, 2).flatten(2)), (k, v)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
        """softmax(q·kᵀ/√D)·v under the mask: (B, H, m, D)."""
        return F.scaled_dot_product_attention(q, k, v, attn_mask=plan, enable_gqa=self.grouped)

    def split(self, x: Tensor) -> Tensor:
        """(B, m, heads·D) → (B, heads, m, D)."""
        return torch.unflatten(x, 2, (-1, self.head_dim)).transpose(1, 2)


def visible(mask: Tensor, tokens: int) -> Tensor:
    """The real keys of `mask` (B, t) for each query: bool (B, 1, m, t).

    Expanded over the queries because ONNX Runtime's Attention does not broadcast that axis of its mask.
    """
    return mask[:, None, None, :].bool().expand(-1, -1, tokens, -1)


class CrossAttention(Attention):
    """Queries from the decoder, keys and values from the encoder's output (Vaswani et al. 2017, section 3.2.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, config.heads, causal=False)

    def keys(self, source: Tensor) -> Cache:
        """Key and value of the encoder's output (B, s, dim), each (B, H, s, D): computed once a sequence."""
        return self.split(self.k(source)), self.split(self.v(source))

    def cross(self, x: Tensor, plan: Plan, keys: Cache) -> Tensor:
        """x (B, m, dim) → (B, m, dim)."""
        k, v = keys
        y: Tensor = self.o(self.attend(self.split(self.q(x)), k, v, plan).transpose(1, 2).flatten(2))
        return y


@dataclass(frozen=True, kw_only=True)
class Window(Softmax):
    """Sliding-window attention: query i sees the keys j with 0 ≤ i - j < window (Mistral, Jiang et al. 2023).

    Computed in blocks of W queries against the 2W - 1 keys that these can see, so time and memory are O(m·W) where a
    masked score matrix is O(m·t):

                  keys ─▶
        block 0   ▨▨▨▨
        block 1       ▨▨▨▨▨▨▨▨
        block 2           ▨▨▨▨▨▨▨▨

    The cache keeps all past keys, as exports of the field do; only the last W - 1 are read.
    """

    window: int

    @property
    def general_tokens(self) -> int:
        """Two blocks."""
        return self.window + 1

    def check(self, config: ModelConfig) -> None:
        """A window holds at least the token itself."""
        super().check(config)
        if self.window < 1:
            raise ConfigError(f"{config.name}: window {self.window} is below 1")

    def build(self, config: ModelConfig, *, causal: bool) -> nn.Module:
        """The attention layer; the window looks back, so a bidirectional model cannot have it."""
        if not causal:
            raise ConfigError(f"{config.name}: a sliding window looks back and cannot mix an {config.topology}")
        return WindowAttention(config, self)

    def flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """Projections and the blocks, padding of the last one included."""
        blocks, block, context = block_sizes(queries, keys - queries, self.window)
        return self.projection_flops(config, queries) + 4 * config.dim * blocks * block * (context + block)

    def scaled(self, before: ModelConfig, after: Sizes) -> Window:
        """The window keeps its share of the context."""
        smaller = super().scaled(before, after)
        return replace(self, kv_heads=smaller.kv_heads, window=max(1, self.window * after.context // before.context))


class WindowPlan(NamedTuple):
    """Indices of the queries (blocks, block) and keys (blocks, width), and the mask (B·blocks, 1, block, width)."""

    queries: Tensor
    keys: Tensor
    mask: Tensor


def block_sizes(tokens: int, past: int, window: int) -> tuple[int, int, int]:
    """Blocks, queries a block, and keys before a block's first query, for `tokens` after `past` tokens.

    Up to W new tokens are one block that sees at most W - 1 past keys, so a decode step pays for what is there. More
    are cut into blocks of W; the first may then look at keys before the start, which the mask hides. All three stay
    symbolic under torch.export.
    """
    blocks = (tokens + window - 1) // window
    block = torch.sym_min(window, tokens)  # type: ignore[no-untyped-call]
    context = torch.sym_min(window - 1, past + (blocks - 1) * window)  # type: ignore[no-untyped-call]
    return blocks, block, context


class WindowAttention(Attention):
    """Causal attention to the last W keys, block by block."""

    def __init__(self, config: ModelConfig, spec: Window) -> None:
        super().__init__(config, spec.groups(config.heads), causal=True)
        self.window = spec.window

    def plan(self, mask: Tensor, tokens: int) -> Plan:
        """Where each block reads, and what it may see there."""
        keys = mask.shape[1]
        past = keys - tokens
        blocks, block, context = block_sizes(tokens, past, self.window)
        start = past + torch.arange(blocks, device=mask.device)[:, None] * block  # blocks, 1
        query = start + torch.arange(block, device=mask.device)  # blocks, block
        key = start - context + torch.arange(context + block, device=mask.device)  # blocks, width
        gap = query[:, :, None] - key[:, None, :]  # blocks, block, width
        inside = key.clamp(0, keys - 1)
        real = (mask[:, inside] > 0) & (key >= 0)  # B, blocks, width
        allowed = real[:, :, None, :] & (gap >= 0) & (gap < self.window) | (gap == 0)  # B, blocks, block, width
        return WindowPlan(
            queries=(query - past).clamp(max=tokens - 1),
            keys=inside,
            mask=allowed.flatten(0, 1)[:, None],
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
        """Fold the blocks into the batch, attend inside each, and unfold: (B, H, m, D)."""
        batch, tokens = q.shape[0], q.shape[2]
        y = super().attend(
            fold(q, plan.queries),  # B·blocks, H, block, D
            fold(k, plan.keys),  # B·blocks, G, width, D
            fold(v, plan.keys),
            plan.mask,
        )
        y = torch.unflatten(y, 0, (batch, plan.queries.shape[0]))  # B, blocks, H, block, D
        return y.transpose(1, 2).flatten(2, 3)[:, :, :tokens]


def fold(x: Tensor, index: Tensor) -> Tensor:
    """Gather blocks and move them into the batch: (B, heads, length, D) → (B·blocks, heads, width, D)."""
    blocks = torch.unflatten(x.index_select(2, index.flatten()), 2, index.shape)  # B, heads, blocks, width, D
    return blocks.transpose(1, 2).flatten(0, 1)
