"""Longformer attention: a window on both sides of each token, and a few global tokens with projections of their own.

Shapes: B batch, n tokens, H heads, D head_dim, w window, g global tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention, Cache, Softmax, visible
from .config import CacheTensor, ConfigError, Rotate
from .position import Learned, NoPosition, Sinusoidal
from .window import fold

if TYPE_CHECKING:
    from .config import ModelConfig, Sizes


@dataclass(frozen=True, kw_only=True)
class Longformer:
    """Local and global attention (Beltagy et al. 2020, section 3).

    A token sees the w/2 tokens on either side of it, itself and the global tokens. A global token sees all, with
    queries, keys and values of its own projections. Global are the first `global_tokens` real tokens of each row:
    with 1 it is [CLS], as in the paper's classification. A mask that names any tokens, as Hugging Face's input
    `global_attention_mask` does, would make the number of global tokens a size that depends on data, which an exported
    graph with a bound on its cost cannot have.

    Computed in blocks of w/2 queries against the 3·w/2 keys around them and the g global ones: time and memory
    O(n·(w + g)).

                   g      keys ─▶
        global     ▨▨▨▨▨▨▨▨▨▨▨▨▨▨
        block 0    ▨  ▨▨▨▨▨▨
        block 1    ▨     ▨▨▨▨▨▨▨▨▨
        block 2    ▨        ▨▨▨▨▨▨
    """

    window: int
    global_tokens: int = 1

    @property
    def general_tokens(self) -> int:
        """Three blocks, of which one has keys on both sides."""
        return self.window + 1

    @property
    def reads(self) -> str:
        """What a token sees."""
        ones = "one" if self.global_tokens == 1 else "ones"
        return f"a window of {self.window:,} tokens and {self.global_tokens} global {ones}"

    @property
    def dense(self) -> Softmax:
        """Attention to all keys; it has no projections of global tokens."""
        return Softmax()

    def check(self, config: ModelConfig) -> None:
        """An even window of an encoder whose positions are added to the embeddings."""
        if self.window < 2 or self.window % 2:
            raise ConfigError(f"{config.name}: window {self.window} is not half to each side: even and at least 2")
        if self.global_tokens < 1:
            raise ConfigError(f"{config.name}: global_tokens {self.global_tokens} is below 1")
        check_encoder(config, "Longformer attention")

    def build(self, config: ModelConfig, *, causal: bool) -> nn.Module:
        """The attention layer."""
        return LongformerAttention(config, self)

    def flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """All projections, the blocks with the rest of the last one, and the rows of the global tokens."""
        blocks, block, context = block_sizes(queries, self.window // 2)
        scored = blocks * block * (2 * context + block + self.global_tokens) + self.global_tokens * queries
        width = config.heads * config.head_dim
        return 2 * config.dim * width * (6 * queries + self.global_tokens) + 4 * width * scored

    def cache(self, config: ModelConfig) -> tuple[CacheTensor, ...]:
        """An encoder keeps nothing."""
        return ()

    def scaled(self, before: ModelConfig, after: Sizes) -> Longformer:
        """The window keeps its share of the context."""
        return replace(self, window=2 * max(1, self.window * after.context // before.context // 2))


def check_encoder(config: ModelConfig, mixer: str) -> None:
    """Refuse what a sparse bidirectional mixer cannot serve: a cache, and positions that act on scores.

    Raises:
        ConfigError: another topology, or positions that are not added to the embeddings.
    """
    if config.topology != "encoder":
        raise ConfigError(f"{config.name}: {mixer} looks both ways and cannot mix a {config.topology}")
    if not isinstance(config.position, Learned | Sinusoidal | NoPosition):
        position = type(config.position).__name__
        raise ConfigError(f"{config.name}: {mixer} needs positions added to the embeddings, and {position} is not")


def block_sizes(tokens: int, half: int) -> tuple[int, int, int]:
    """Blocks, queries a block, and keys on each side of a block; symbolic under torch.export.

    Up to w/2 tokens are one block that sees itself alone.
    """
    blocks = (tokens + half - 1) // half
    block = torch.sym_min(half, tokens)  # type: ignore[no-untyped-call]
    context = torch.sym_min(half, (blocks - 1) * half)  # type: ignore[no-untyped-call]
    return blocks, block, context


class LongformerPlan(NamedTuple):
    """Where the blocks and the global tokens are, and what they see."""

    queries: Tensor  # blocks, block: a token each
    keys: Tensor  # blocks, width: a token each
    local: Tensor  # B·blocks, 1, block, g + width: bool
    anchors: Tensor  # B, g: the global tokens
    seen: Tensor  # B, 1, g, n: bool, what they see
    rank: Tensor  # B, n: which global token a token is, if it is one
    is_global: Tensor  # B, n: bool


class LongformerAttention(Attention):
    """Window and global tokens."""

    def __init__(self, config: ModelConfig, spec: Longformer) -> None:
        super().__init__(config, Softmax(), causal=False)
        self.reach, self.anchors = spec.window // 2, spec.global_tokens
        width = config.heads * config.head_dim
        self.q_global = nn.Linear(config.dim, width, bias=config.biases.qkv)
        self.k_global = nn.Linear(config.dim, width, bias=config.biases.qkv)
        self.v_global = nn.Linear(config.dim, width, bias=config.biases.qkv)

    def plan(self, mask: Tensor, tokens: int, bias: Tensor | None = None) -> LongformerPlan:
        """Global tokens are keys of every block; inside the blocks they are hidden, so that none counts twice."""
        index = torch.arange(tokens, device=mask.device)
        rank = mask.cumsum(1) - 1  # B, n
        is_global = (mask > 0) & (rank < self.anchors)
        order = torch.arange(self.anchors, device=mask.device)
        found = is_global[:, None, :] & (rank[:, None, :] == order[:, None])  # B, g, n
        queries, keys, near = self._blocks(tokens, index)
        inside = keys.clamp(0, tokens - 1)
        plain = ((mask > 0) & ~is_global)[:, inside]  # B, blocks, width
        itself = queries[:, :, None] == keys[:, None, :]  # padding sees itself, so that no row is without a key
        window = plain[:, :, None, :] & near | itself  # B, blocks, block, width
        anchored = (found.sum(2) > 0)[:, None, None, :].expand(-1, window.shape[1], window.shape[2], -1)
        return LongformerPlan(
            queries=queries.clamp(max=tokens - 1),
            keys=inside,
            local=torch.cat((anchored, window), dim=3).flatten(0, 1)[:, None],
            anchors=(found * index).sum(2),
            seen=visible(mask, self.anchors),
            rank=rank.clamp(0, self.anchors - 1),
            is_global=is_global,
        )

    def _blocks(self, tokens: int, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (blocks, block), keys (blocks, width) and which are near (blocks, block, width); some lie outside."""
        blocks, block, context = block_sizes(tokens, self.reach)
        start = torch.arange(blocks, device=index.device)[:, None] * block
        queries = start + torch.arange(block, device=index.device)
        keys = start - context + torch.arange(2 * context + block, device=index.device)
        near = (queries[:, :, None] - keys[:, None, :]).abs() <= self.reach
        return queries, keys, near & ((keys >= 0) & (keys < tokens))[:, None, :]

    def forward(self, x: Tensor, plan: LongformerPlan, rotate: Rotate, past: Cache) -> tuple[Tensor, Cache]:
        """x (B, n, dim) → (B, n, dim); no cache."""
        y = self._local(self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x)), plan)  # B, H, n, D
        anchors = x.gather(1, plan.anchors[:, :, None].expand(-1, -1, x.shape[2]))  # B, g, dim
        of_global = F.scaled_dot_product_attention(
            self.split(self.q_global(anchors)),
            self.split(self.k_global(x)),
            self.split(self.v_global(x)),
            attn_mask=plan.seen,
        )  # B, H, g, D
        y = torch.where(plan.is_global[:, None, :, None], take(of_global, plan.rank), y)
        return self.o(y.transpose(1, 2).flatten(2)), ()

    def _local(self, q: Tensor, k: Tensor, v: Tensor, plan: LongformerPlan) -> Tensor:
        """Each block against the global tokens and the keys around it: (B, H, n, D)."""
        blocks = plan.keys.shape[0]

        def around(x: Tensor) -> Tensor:
            anchors = take(x, plan.anchors)[:, None].expand(-1, blocks, -1, -1, -1)  # B, blocks, H, g, D
            return torch.cat((anchors.flatten(0, 1), fold(x, plan.keys)), dim=2)  # B·blocks, H, g + width, D

        y = F.scaled_dot_product_attention(fold(q, plan.queries), around(k), around(v), attn_mask=plan.local)
        y = torch.unflatten(y, 0, (q.shape[0], blocks))  # B, blocks, H, block, D
        return y.transpose(1, 2).flatten(2, 3)[:, :, : q.shape[2]]


def take(x: Tensor, index: Tensor) -> Tensor:
    """Tokens of each row by index: x (B, H, n, D), index (B, k) → (B, H, k, D)."""
    return x.gather(2, index[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))
