"""Attention over relative positions, learned a layer: Shaw et al. 2018 and Transformer-XL.

Shapes: B batch, m new tokens, p past tokens, t = p + m keys, H heads, D head_dim, K clipping distance.

Distances count columns, so padding belongs on one side. Neither reads `position_ids`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention, Plan, Softmax, distances
from .config import CacheTensor, ConfigError
from .embedding import root
from .position import NoPosition
from .rope_scaling import frequencies

if TYPE_CHECKING:
    from .config import ModelConfig, Sizes

_PLAIN = Softmax()


@dataclass(frozen=True, kw_only=True)
class Shaw:
    """Keys and values with a learned vector a distance, j - i clipped to ±clip (Shaw et al. 2018, section 3):

        score_ij = q_i·(k_j + a_K[j - i]) / √D        y_i = Σ_j weight_ij·(v_j + a_V[j - i])

    with vectors a layer and head. Scores of the 2·clip + 1 distances are computed once a query and then looked up; the
    weights of each distance are added up before they meet the values: O(m·(t + clip)) where the formula reads O(m·t·D).
    """

    clip: int
    general_tokens = 2

    def check(self, config: ModelConfig) -> None:
        """It is the model's only position."""
        _refuse_position(config, self)
        if self.clip < 1:
            raise ConfigError(f"{config.name}: clip {self.clip} is below 1")

    def build(self, config: ModelConfig, *, causal: bool) -> nn.Module:
        """The attention layer."""
        return ShawAttention(config, self, causal=causal)

    def flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """Plain attention, and a product with each of the two tables."""
        tables = 4 * config.heads * config.head_dim * queries * (2 * self.clip + 1)
        return _PLAIN.flops(config, queries, keys) + tables

    def cache(self, config: ModelConfig) -> tuple[CacheTensor, ...]:
        """Keys and values, without positions."""
        return _PLAIN.cache(config)

    def scaled(self, before: ModelConfig, after: Sizes) -> Shaw:
        """The clipping distance stays."""
        return self


class ShawPlan(NamedTuple):
    """`allowed` (B, 1, m, t); `gap` (m, t), how far a key lies before a query."""

    allowed: Tensor
    gap: Tensor


class ShawAttention(Attention):
    """Attention with relative key and value vectors."""

    def __init__(self, config: ModelConfig, spec: Shaw, *, causal: bool) -> None:
        super().__init__(config, _PLAIN, causal=causal)
        self.clip = spec.clip
        self.key_vectors = nn.Embedding(2 * spec.clip + 1, config.heads * config.head_dim)
        self.value_vectors = nn.Embedding(2 * spec.clip + 1, config.heads * config.head_dim)

    def plan(self, mask: Tensor, tokens: int, bias: Tensor | None = None) -> ShawPlan:
        """What each query may see, and how far it is."""
        return ShawPlan(super().plan(mask, tokens), distances(mask, tokens))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
        """(B, H, m, D)."""
        q = q / root(q)
        offset = (-plan.gap).clamp(-self.clip, self.clip) + self.clip  # m, t
        by_offset = q @ self._by_head(self.key_vectors).transpose(1, 2)  # B, H, m, 2K + 1
        relative = by_offset.gather(3, offset.expand(*q.shape[:2], -1, -1))  # B, H, m, t
        scores = (q @ k.transpose(2, 3) + relative).masked_fill(~plan.allowed, -torch.inf)
        weights = scores.softmax(-1)
        return weights @ v + self._sums(weights, plan.gap) @ self._by_head(self.value_vectors)

    def _by_head(self, table: nn.Embedding) -> Tensor:
        """The vectors of a table: (H, 2K + 1, D)."""
        return torch.unflatten(table.weight, 1, (-1, self.head_dim)).transpose(0, 1)

    def _sums(self, weights: Tensor, gap: Tensor) -> Tensor:
        """The weight of each clipped distance, -K … K: (B, H, m, t) → (B, H, m, 2K + 1).

        Between the ends a distance has one key at most, which is looked up.
        """
        keys = gap.shape[1]
        column = gap[:, :1] + torch.arange(1 - self.clip, self.clip, device=gap.device)  # m, 2K - 1
        inside = (column >= 0) & (column < keys)
        near = weights.gather(3, column.clamp(0, keys - 1).expand(*weights.shape[:2], -1, -1)) * inside
        before = (weights * (gap >= self.clip)).sum(-1, keepdim=True)
        after = (weights * (gap <= -self.clip)).sum(-1, keepdim=True)
        return torch.cat((before, near, after), dim=-1)


@dataclass(frozen=True)
class TransformerXL:
    """Attention by content and by distance (Dai et al. 2019, section 3.3), with a memory of earlier segments (3.2):

        score_ij = ((q_i + u)·k_j + (q_i + v)·W_r·r[i - j]) / √D

    where r[d] is the sinusoid of distance d, and W_r, u and v belong to a layer. The memory is the cache: the paper
    keeps the states of the last segment, this layer their keys and values, which are the same numbers times fixed
    matrices, since a key has no position. A step with a past of p tokens is a segment with a memory of p; who calls
    decides how much is kept.
    """

    general_tokens = 2

    def check(self, config: ModelConfig) -> None:
        """A memory lies in the past, and distances are the model's only position."""
        _refuse_position(config, self)
        if config.topology != "decoder" or config.dim % 2:
            raise ConfigError(
                f"{config.name}: Transformer-XL is a decoder of even dim, not an {config.topology} of dim {config.dim}"
            )

    def build(self, config: ModelConfig, *, causal: bool) -> nn.Module:
        """The attention layer."""
        return TransformerXLAttention(config)

    def flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """Plain attention, and the scores by distance."""
        return _PLAIN.flops(config, queries, keys) + 2 * config.heads * config.head_dim * queries * keys

    def shared_flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """W_r of every distance."""
        return 2 * keys * config.dim * config.heads * config.head_dim

    def cache(self, config: ModelConfig) -> tuple[CacheTensor, ...]:
        """Keys and values, without positions."""
        return _PLAIN.cache(config)

    def scaled(self, before: ModelConfig, after: Sizes) -> TransformerXL:
        """It has no size of its own."""
        return self


class TransformerXLPlan(NamedTuple):
    """`allowed` (B, 1, m, t); `sinusoids` (1, t, dim) of the distances t - 1 … 0."""

    allowed: Tensor
    sinusoids: Tensor


class TransformerXLAttention(Attention):
    """Attention with a content bias u and a distance bias v."""

    frequencies: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, _PLAIN, causal=True)
        self.r = nn.Linear(config.dim, config.heads * config.head_dim, bias=False)
        self.content_bias = nn.Parameter(torch.empty(config.heads, 1, config.head_dim))
        self.distance_bias = nn.Parameter(torch.empty(config.heads, 1, config.head_dim))
        self.register_buffer("frequencies", frequencies(config.dim, 10_000.0), persistent=False)

    def initialise(self, generator: torch.Generator) -> None:
        """Biases of the size of a query."""
        for bias in (self.content_bias, self.distance_bias):
            nn.init.normal_(bias, 0, 1, generator=generator)

    def plan(self, mask: Tensor, tokens: int, bias: Tensor | None = None) -> TransformerXLPlan:
        """What each query may see, and the sinusoids of all distances."""
        distance = torch.arange(mask.shape[1], device=mask.device).flip(0)
        angles = distance[:, None].to(self.frequencies.dtype) * self.frequencies  # t, dim/2
        waves = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[None]
        return TransformerXLPlan(super().plan(mask, tokens), waves)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
        """(B, H, m, D)."""
        r = self.split(self.r(plan.sinusoids))  # 1, H, t, D
        distance = shifted((q + self.distance_bias) / root(q) @ r.transpose(2, 3))  # B, H, m, t
        bias = distance.masked_fill(~plan.allowed, -torch.inf)
        return F.scaled_dot_product_attention(q + self.content_bias, k, v, attn_mask=bias)


def shifted(x: Tensor) -> Tensor:
    """Scores by distance t - 1 … 0 → by key, (B, H, m, t): row i moves left by m - 1 - i (Dai et al., appendix B).

    One more column in front and a reading without its first m numbers is that shift. What moves in at the right belongs
    to keys that come after the query, which the mask hides.
    """
    tokens, keys = x.shape[2], x.shape[3]
    return torch.unflatten(F.pad(x, (1, 0)).flatten(2)[:, :, tokens:], 2, (tokens, keys))


def _refuse_position(config: ModelConfig, mixer: Shaw | TransformerXL) -> None:
    if not isinstance(config.position, NoPosition):
        raise ConfigError(f"{config.name}: {mixer} holds the positions itself, and {config.position} would be ignored")
