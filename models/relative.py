"""Biases on attention scores that depend on the distance between two tokens: T5's buckets and ALiBi.

Shapes: B batch, m new tokens, t = past + m keys, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .attention import Softmax, distances
from .config import ConfigError
from .position import PositionEncoding

if TYPE_CHECKING:
    from .config import ModelConfig


@dataclass(frozen=True)
class RelativeBias:
    """A learned bias a head and bucket of distances, shared by all layers of a stack (T5, Raffel et al. 2020, 2.1).

    Half of the buckets hold one distance each, the other half grow like a logarithm up to `max_distance`; the last
    holds all that is farther. A bidirectional stack spends half of the buckets on keys that come after the query.
    Cross-attention has no bias. A lookup a pair of tokens, and no floating-point operation that `flops` counts.
    """

    buckets: int = 32
    max_distance: int = 128
    uses_ids = False

    def check(self, config: ModelConfig) -> None:
        """Attention must take a bias, and the buckets must come in halves of halves."""
        _check_mixers(config, "T5's relative bias")
        if self.buckets < 4 or self.buckets % 4:
            raise ConfigError(f"{config.name}: {self.buckets} buckets of distances are not a multiple of 4")
        if self.max_distance <= self.buckets // 2:
            raise ConfigError(
                f"{config.name}: max_distance {self.max_distance} is within half of {self.buckets} buckets"
            )

    def build(self, config: ModelConfig) -> PositionEncoding:
        """The table of biases."""
        return RelativeBiasEncoding(config, self)

    def limit(self, config: ModelConfig) -> int | None:
        """No limit: the last bucket has no end."""
        return None


class RelativeBiasEncoding(PositionEncoding):
    """Adds table[bucket(distance), head] to scores."""

    backward: Tensor
    both_ways: Tensor

    def __init__(self, config: ModelConfig, spec: RelativeBias) -> None:
        super().__init__()
        self.far = spec.max_distance
        self.table = nn.Embedding(spec.buckets, config.heads)
        half = spec.buckets // 2
        before = bucket_of_distance(half, self.far)  # of distances 0 … far
        after = [half + bucket for bucket in before[:0:-1]]  # of distances -far … -1
        self.register_buffer("backward", torch.tensor(bucket_of_distance(spec.buckets, self.far)), persistent=False)
        self.register_buffer("both_ways", torch.tensor(after + before), persistent=False)

    def bias(self, x: Tensor, mask: Tensor, *, causal: bool) -> Tensor:
        """(1, H, m, t)."""
        gap = distances(mask, x.shape[1])  # m, t
        index = gap.clamp(0, self.far) if causal else gap.clamp(-self.far, self.far) + self.far
        by_distance = self.table(self.backward if causal else self.both_ways).T  # H, distances
        return torch.unflatten(by_distance.index_select(1, index.flatten()), 1, index.shape)[None]


def bucket_of_distance(buckets: int, far: int) -> list[int]:
    """The bucket of each distance 0 … far, in whole numbers.

    A distance d beyond half = buckets/2 falls into half + floor(half·log(d/half) / log(far/half)), so into half + k at
    least if (d/half)^half ≥ (far/half)^k. A logarithm in float32 would have to hit the ends of the buckets exactly.
    """
    half = buckets // 2
    thresholds = [(far**k * half**half, half**k) for k in range(1, half)]
    grown = (sum(d**half * scale >= bound for bound, scale in thresholds) for d in range(half, far + 1))
    return [*range(half), *(half + k for k in grown)]


@dataclass(frozen=True)
class Alibi:
    """Attention with linear biases: -slope·distance, a fixed slope a head and nothing learned (Press et al. 2022).

    Distances count real tokens, as in BLOOM, which builds its bias from the attention mask; the two papers agree where
    padding stands on one side. BLOOM leaves out the query's own position, which softmax ignores; here it is subtracted,
    as by Press, so that near keys have small biases at any length.
    """

    uses_ids = False

    def check(self, config: ModelConfig) -> None:
        """The past is penalised, and there is a past only in a decoder."""
        _check_mixers(config, "ALiBi")
        if config.topology != "decoder":
            raise ConfigError(f"{config.name}: ALiBi penalises the past and has no rule for an {config.topology}")

    def build(self, config: ModelConfig) -> PositionEncoding:
        """The slopes."""
        return AlibiEncoding(config)

    def limit(self, config: ModelConfig) -> int | None:
        """No limit."""
        return None


class AlibiEncoding(PositionEncoding):
    """Subtracts slope·distance from scores."""

    slopes: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(slopes(config.heads), dtype=torch.float32), persistent=False)

    def bias(self, x: Tensor, mask: Tensor, *, causal: bool) -> Tensor:
        """(B, H, m, t)."""
        counted = mask.cumsum(1)  # B, t
        gap = counted[:, mask.shape[1] - x.shape[1] :, None] - counted[:, None, :]  # B, m, t
        return -self.slopes[:, None, None] * gap[:, None].to(self.slopes.dtype)


def slopes(heads: int) -> list[float]:
    """2^(-8i/heads) for i = 1 … heads; where heads is no power of two, those of the power below, then every other one
    of the power above (Press et al. 2022, section 3 and the authors' `get_slopes`)."""
    power = 1 << (heads.bit_length() - 1)
    first = [2.0 ** (-8 * i / power) for i in range(1, power + 1)]
    return first + [2.0 ** (-4 * i / power) for i in range(1, 2 * (heads - power), 2)]


def _check_mixers(config: ModelConfig, what: str) -> None:
    for mixer in config.mixers:
        if type(mixer) is not Softmax or mixer.softcap is not None:
            raise ConfigError(f"{config.name}: {what} adds to the scores of plain attention, and {mixer} takes no bias")
