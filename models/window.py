"""Sliding-window attention, computed in blocks.

Shapes: B batch, m new tokens, p past tokens, t = p + m keys, H heads, G kv_heads, D head_dim, W window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from .attention import Attention, Plan, Softmax
from .config import ConfigError

if TYPE_CHECKING:
    from .config import ModelConfig, Sizes


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

    @property
    def reads(self) -> str:
        """What a token sees."""
        return f"a window of {self.window:,} tokens"

    @property
    def dense(self) -> Softmax:
        """The same attention without the window."""
        return Softmax(kv_heads=self.kv_heads, scale=self.scale, softcap=self.softcap, qk_norm=self.qk_norm)

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
        scored = blocks * block * (context + block)
        return self.projection_flops(config, queries) + 4 * config.heads * config.head_dim * scored

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
        super().__init__(config, spec, causal=True)
        self.window = spec.window

    def plan(self, mask: Tensor, tokens: int, bias: Tensor | None = None) -> Plan:
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
