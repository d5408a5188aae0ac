"""BigBird attention: blocks that see their neighbours, the first and last block, and a few random ones.

Shapes: B batch, n tokens, H heads, D head_dim, N blocks, b tokens a block, r random blocks, S = 5 + r slots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention, Cache, Softmax, visible
from .config import CacheTensor, ConfigError, Rotate
from .longformer import check_encoder

if TYPE_CHECKING:
    from .config import ModelConfig, Sizes

PRIME = 2**31 - 1  # squares of numbers below it fit into int64
FACTOR = 48_271


@dataclass(frozen=True, kw_only=True)
class BigBird:
    """Sparse attention by blocks (Zaheer et al. 2020, section 2, internal transformer construction).

    Block i sees blocks i - 1, i and i + 1, the first, the last, and r others at random; the first and the last see
    all. Time and memory are O(n·b·(5 + r)):

                   0              N - 1
        block 0    ▨▨▨▨▨▨▨▨▨▨▨▨▨▨▨▨▨▨
        block 1    ▨▨▨▨▨▨      ▨▨▨ ▨▨
        block 2    ▨▨▨▨▨▨▨▨▨▨   ▨▨ ▨▨ …

    Which blocks are random is a function of the block, the head, N and `seed` (one a layer) in integer arithmetic, so
    torch and every runtime draw the same at every length: see `random_blocks`. Where fewer than r are left, all are
    taken, so up to N = 4 + r this is attention to all keys. (Hugging Face draws with NumPy in training alone: in eval
    mode its random blocks are block 0, counted r times more; and up to n = (5 + 2r)·b it switches to all keys.)
    """

    block: int
    random: int
    seed: int = 0

    @property
    def general_tokens(self) -> int:
        """Three blocks."""
        return 2 * self.block + 1

    @property
    def reads(self) -> str:
        """What a block sees."""
        return f"{5 + self.random} blocks of {self.block:,} tokens"

    @property
    def dense(self) -> Softmax:
        """Attention to all keys."""
        return Softmax()

    def check(self, config: ModelConfig) -> None:
        """Blocks of an encoder whose positions are added to the embeddings."""
        for name, least in {"block": 1, "random": 1, "seed": 0}.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{config.name}: {name} {getattr(self, name)} is below {least}")
        check_encoder(config, "BigBird attention")

    def build(self, config: ModelConfig, *, causal: bool) -> nn.Module:
        """The attention layer."""
        return BigBirdAttention(config, self)

    def flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """Projections, all slots of all blocks, and the rows of the first and last block."""
        blocks, block = block_sizes(queries, self.block)
        scored = blocks * block * (5 + self.random) * block + 2 * block * queries
        width = config.heads * config.head_dim
        return 2 * 4 * queries * config.dim * width + 4 * width * scored

    def cache(self, config: ModelConfig) -> tuple[CacheTensor, ...]:
        """An encoder keeps nothing."""
        return ()

    def scaled(self, before: ModelConfig, after: Sizes) -> BigBird:
        """A block keeps its share of the context."""
        return replace(self, block=max(1, self.block * after.context // before.context))


def block_sizes(tokens: int, block: int) -> tuple[int, int]:
    """Blocks and tokens a block; a text shorter than a block is one block of its own size. Symbolic under export."""
    return (tokens + block - 1) // block, torch.sym_min(block, tokens)  # type: ignore[no-untyped-call]


def random_blocks(blocks: int, heads: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The random blocks of each head and block, (H, N, r), and whether each is there, bool (H or 1, N, r).

    Candidates of block i are all but 0, N - 1 and i - 1 … i + 1: C of them, in order. They are cut into r runs of equal
    size, up to one, and each run gives one candidate: so none comes twice, and if C < r all come. The place in the run
    is a hash of (seed, head, i, run, N), folded by x ← x² + 48271·key mod 2³¹ - 1.
    """
    row, run = torch.arange(blocks)[:, None], torch.arange(count)  # N, 1 and r
    left, right = (row - 2).clamp(min=0), (blocks - 3 - row).clamp(min=0)  # candidates on either side
    begin, end = run * (left + right) // count, (run + 1) * (left + right) // count  # N, r
    hashed = torch.full((1, 1, 1), seed + 1)
    for key in (torch.arange(heads)[:, None, None], row, run, blocks):
        hashed = (hashed * hashed + FACTOR * (key + 1)) % PRIME
    chosen = begin + hashed % (end - begin).clamp(min=1)  # H, N, r: the number of a candidate
    return torch.where(chosen < left, chosen + 1, chosen - left + row + 2), end > begin


class BigBirdPlan(NamedTuple):
    """Where the blocks and the rows that see all are, and what they see."""

    queries: Tensor  # N, b: a token each
    keys: Tensor  # H·N, S·b: a token of a head each, with the heads one after the other
    mask: Tensor  # B, H·N, b, S·b: bool
    rows: Tensor  # 2b: the tokens of the first and last block
    seen: Tensor  # B, 1, 2b, n: bool, what they see
    row: Tensor  # n: which of the rows a token is, if it is one
    is_row: Tensor  # n: bool


class BigBirdAttention(Attention):
    """Window, global and random blocks."""

    def __init__(self, config: ModelConfig, spec: BigBird) -> None:
        super().__init__(config, Softmax(), causal=False)
        self.heads, self.spec = config.heads, spec

    def plan(self, mask: Tensor, tokens: int, bias: Tensor | None = None) -> BigBirdPlan:
        """Slots are blocks 0, N - 1, i - 1, i, i + 1 and the random ones; a window block that is 0 or N - 1 is hidden,
        so that none counts twice."""
        blocks, block = block_sizes(tokens, self.spec.block)
        within, index = torch.arange(block, device=mask.device), torch.arange(tokens, device=mask.device)
        slots, there = self._slots(blocks, mask.device)  # H, N, S
        place = (slots.clamp(0, blocks - 1)[..., None] * block + within).flatten(2)  # H, N, S·b
        inside = place.clamp(max=tokens - 1)
        there = there[..., None].expand(-1, -1, -1, block).flatten(2) & (place < tokens)
        queries = (torch.arange(blocks, device=mask.device)[:, None] * block + within).clamp(max=tokens - 1)
        itself = queries[:, :, None] == place[:, :, None, :]  # padding sees itself, so that no row is without a key
        allowed = ((mask > 0)[:, inside][:, :, :, None, :] | itself) & there[:, :, None, :]  # B, H, N, b, S·b
        heads = torch.arange(self.heads, device=mask.device)[:, None, None] * tokens
        last = (blocks - 1) * block
        rows = torch.cat((within, within + last)).clamp(max=tokens - 1)
        is_row = (index < block) | (index >= last)
        row = torch.where(index < block, index, index - last + block)
        return BigBirdPlan(
            queries=queries,
            keys=(heads + inside).flatten(0, 1),
            mask=allowed.flatten(1, 2),
            rows=rows,
            seen=visible(mask, rows.shape[0]),
            row=torch.where(is_row, row, 0),
            is_row=is_row,
        )

    def _slots(self, blocks: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The block in each slot and whether it is there, both (H, N, S)."""
        chosen, drawn = random_blocks(blocks, self.heads, self.spec.random, self.spec.seed)
        row = torch.arange(blocks)[:, None]
        ends = torch.cat((row * 0, row * 0 + blocks - 1), dim=1)  # N, 2
        window = row + torch.arange(-1, 2)  # N, 3
        fixed = torch.cat((ends, window), dim=1)
        there = torch.cat((row == row, row * 0 < blocks - 1, (window > 0) & (window < blocks - 1), drawn), dim=1)
        slots = torch.cat((fixed.expand(self.heads, -1, -1), chosen), dim=2)
        return slots.to(device), there.expand(self.heads, -1, -1).to(device)

    def forward(self, x: Tensor, plan: BigBirdPlan, rotate: Rotate, past: Cache) -> tuple[Tensor, Cache]:
        """x (B, n, dim) → (B, n, dim); no cache."""
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))  # B, H, n, D
        sparse = self._sparse(q, k, v, plan)
        full = F.scaled_dot_product_attention(q.index_select(2, plan.rows), k, v, attn_mask=plan.seen)  # B, H, 2b, D
        y = torch.where(plan.is_row[:, None], full.index_select(2, plan.row), sparse)
        return self.o(y.transpose(1, 2).flatten(2)), ()

    def _sparse(self, q: Tensor, k: Tensor, v: Tensor, plan: BigBirdPlan) -> Tensor:
        """Each block of each head against its slots, all as heads of one attention: (B, H, n, D)."""

        def slots(x: Tensor) -> Tensor:
            return torch.unflatten(x.flatten(1, 2).index_select(1, plan.keys.flatten()), 1, plan.keys.shape)

        blocked = torch.unflatten(q.index_select(2, plan.queries.flatten()), 2, plan.queries.shape)  # B, H, N, b, D
        y = F.scaled_dot_product_attention(blocked.flatten(1, 2), slots(k), slots(v), attn_mask=plan.mask)
        y = torch.unflatten(y, 1, (self.heads, plan.queries.shape[0]))  # B, H, N, b, D
        return y.flatten(2, 3)[:, :, : q.shape[2]]
