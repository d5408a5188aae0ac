"""Tiled attention: exact softmax attention whose memory is linear in the number of tokens.

Shapes: B batch, m new tokens, t keys, H heads, G kv_heads, R = H/G heads a group, D head_dim, b keys a block, N blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from .attention import Attention, Plan, Softmax, scaled
from .config import ConfigError

if TYPE_CHECKING:
    from .config import ModelConfig, Sizes

Blocks = tuple[Tensor, ...]
State = tuple[Tensor, Tensor, Tensor]  # largest score and sum (B, G, R, m, 1), weighted values (B, G, R, m, D)


@dataclass(frozen=True, kw_only=True)
class Tiled(Softmax):
    """softmax(Q·Kᵀ/√D)·V over one block of keys after another, with the online softmax (Milakov and Gimelshein 2018;
    Rabe and Staats 2021; FlashAttention, Dao et al. 2022, algorithm 1):

        μ' = max(μ, max s)    ℓ' = ℓ·e^(μ - μ') + Σ e^(s - μ')    o' = o·e^(μ - μ') + e^(s - μ')·V    y = o/ℓ

    Only the scores of one block exist at a time, so memory is O(m·b) where it is O(m·t) in plain attention; the
    result is the same but for rounding, and so is the number of operations. An export keeps the loop as the operator
    Scan: the graph's memory is linear as well. FlashAttention also cuts the queries into blocks, so that a
    tile fits into the fast memory of a GPU and the half above the diagonal is skipped; here each block meets all
    queries, and causality is a mask.
    """

    block: int

    @property
    def general_tokens(self) -> int:
        """Two blocks."""
        return self.block + 1

    def check(self, config: ModelConfig) -> None:
        """A block holds a key; scores are plain."""
        super().check(config)
        if self.block < 1:
            raise ConfigError(f"{config.name}: block {self.block} is below 1")
        if self.softcap is not None:
            raise ConfigError(f"{config.name}: tiled attention has no softcap, and {self.softcap} is given")

    def build(self, config: ModelConfig, *, causal: bool) -> nn.Module:
        """The attention layer."""
        return TiledAttention(config, self, causal=causal)

    def flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """Projections, and the scores of all blocks with the rest of the last one."""
        blocks, block = block_sizes(keys, self.block)
        return super().flops(config, queries, blocks * block)

    def scaled(self, before: ModelConfig, after: Sizes) -> Tiled:
        """A block keeps its share of the context."""
        smaller = super().scaled(before, after)
        return replace(self, kv_heads=smaller.kv_heads, block=max(1, self.block * after.context // before.context))


def block_sizes(keys: int, block: int) -> tuple[int, int]:
    """Blocks and keys a block; fewer keys than a block are one block of their number. Symbolic under torch.export."""
    return (keys + block - 1) // block, torch.sym_min(block, keys)  # type: ignore[no-untyped-call]


class TiledPlan(NamedTuple):
    """Which keys are in each block, and what is seen of them."""

    keys: Tensor  # N, b: the number of each key, -1 in the rest of the last block
    real: Tensor  # N, B, b: bool
    queries: Tensor  # m, 1: the number of each query


class TiledAttention(Attention):
    """Softmax attention, block by block."""

    def __init__(self, config: ModelConfig, spec: Tiled, *, causal: bool) -> None:
        super().__init__(config, spec, causal=causal)
        self.block = spec.block
        self.groups = spec.groups(config.heads)

    def plan(self, mask: Tensor, tokens: int, bias: Tensor | None = None) -> Plan:
        """Blocks of all keys; the mask of scores is made within the loop, a block at a time."""
        return self.blocks(mask, torch.arange(mask.shape[1] - tokens, mask.shape[1], device=mask.device))

    def blocks(self, mask: Tensor, queries: Tensor) -> TiledPlan:
        """Blocks of the keys of `mask` (B, t) for queries (m), which are numbered as the keys are, 0 … t - 1."""
        total = mask.shape[1]
        blocks, block = block_sizes(total, self.block)
        keys = torch.arange(blocks, device=mask.device)[:, None] * block + torch.arange(block, device=mask.device)
        keys = torch.where(keys < total, keys, -1)
        real = (mask[:, keys.clamp(min=0)] > 0) & (keys >= 0)  # B, N, b
        return TiledPlan(keys, real.transpose(0, 1), queries[:, None])

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
        """softmax(scale·q·kᵀ)·v, (B, H, m, D)."""
        q = self.by_group(q)
        return finish(self.absorb(begin(q), q, k, v, plan))

    def by_group(self, q: Tensor) -> Tensor:
        """Scaled queries (B, H, m, D) → (B, G, R, m, D)."""
        return torch.unflatten(scaled(q, self.scale), 1, (self.groups, -1))

    def absorb(self, state: State, q: Tensor, k: Tensor, v: Tensor, plan: TiledPlan) -> State:
        """The state after these keys and values (B, G, t, D) more, a block at a time."""

        def step(state: State, block: Blocks) -> State:
            k, v, keys, real = block
            scores = q @ k.transpose(-1, -2)  # B, G, R, m, b
            return update(state, scores.masked_fill(~self._allowed(plan.queries, keys, real), -torch.inf), v)

        return over(step, state, (cut(k, plan.keys), cut(v, plan.keys), plan.keys, plan.real))

    def _allowed(self, queries: Tensor, keys: Tensor, real: Tensor) -> Tensor:
        """What the queries (m, 1) see of the keys (b), real or not (B, b): bool (B, 1, 1, m, b)."""
        allowed = real[:, None, None, None, :]
        return allowed & (keys <= queries) | (keys == queries) if self.causal else allowed


def over(step: Callable[[State, Blocks], State], state: State, blocks: Blocks) -> State:
    """The state after all blocks, cut along the first axis. A loop here, and `torch.scan` in an export, which would
    compile itself again for every kind of shape if it ran here."""
    if torch.compiler.is_compiling():
        state, _ = scan(lambda state, block: (step(state, block), ()), state, blocks)
        return state
    for block in zip(*blocks, strict=True):
        state = step(state, block)
    return state


def begin(q: Tensor) -> State:
    """The state before any key, for queries (…, m, D); the least finite number, since -∞ - (-∞) is none."""
    first = q[..., :1]
    return torch.full_like(first, torch.finfo(q.dtype).min), torch.zeros_like(first), torch.zeros_like(q)


def finish(state: State) -> Tensor:
    """The result (B, H, m, D) after all keys."""
    _, total, weighted = state
    return (weighted / total).flatten(1, 2)


def update(state: State, scores: Tensor, v: Tensor) -> State:
    """The online softmax: the state after scores (…, m, b) and values (…, b, D) more."""
    largest, total, weighted = state
    new = torch.maximum(largest, scores.amax(-1, keepdim=True))
    weights, decay = (scores - new).exp(), (largest - new).exp()
    return new, total * decay + weights.sum(-1, keepdim=True), weighted * decay + weights @ v


def cut(x: Tensor, keys: Tensor) -> Tensor:
    """Blocks of keys or values, first: (B, G, t, D) → (N, B, G, 1, b, D)."""
    inside = keys.clamp(min=0)
    blocks = torch.unflatten(x.index_select(2, inside.flatten()), 2, inside.shape)  # B, G, N, b, D
    return blocks.permute(2, 0, 1, 3, 4)[:, :, :, None]
