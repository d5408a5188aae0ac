"""RoPE scaling: how the frequencies of a rotary encoding change for contexts beyond the trained one.

Shapes: B batch, m new tokens, d the rotary size. A rule computes its table once, in float64; only the rules that depend
on the length look at positions. All equal `modeling_rope_utils` of transformers but for one point: where that takes the
largest position of a batch, each row here takes its own, so that no row depends on its batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log, pi, sqrt

import torch
from torch import Tensor

from .config import ConfigError


def frequencies(dim: int, base: float) -> Tensor:
    """base^(-2i/dim) for i = 0 … dim/2 - 1, computed in float64: the first is the fastest."""
    return exact_frequencies(dim, base).float()


def exact_frequencies(dim: int, base: float) -> Tensor:
    """`frequencies` before they are rounded to float32."""
    return base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)


@dataclass(frozen=True)
class RopeScaling:
    """No scaling: the base of the rules."""

    @property
    def temperature(self) -> float:
        """What cosines and sines are multiplied by, so scores by its square."""
        return 1.0

    def check(self, name: str, dim: int) -> None:
        """Refuse an impossible rule for rotary size `dim` with ConfigError."""

    def table(self, dim: int, base: float) -> Tensor:
        """The frequencies (d/2) in float64, or rows of which `rates` makes them."""
        return exact_frequencies(dim, base)

    def rates(self, table: Tensor, positions: Tensor) -> Tensor:
        """The frequencies for positions (B, m): (d/2), or (B, 1, 1, d/2) where they depend on the length."""
        return table


@dataclass(frozen=True)
class Linear(RopeScaling):
    """Position interpolation: every frequency divided by `factor` (Chen et al. 2023, "Extending Context Window")."""

    factor: float

    def check(self, name: str, dim: int) -> None:
        """Contexts grow."""
        _refuse_below_one(name, "factor", self.factor)

    def table(self, dim: int, base: float) -> Tensor:
        """All as much slower."""
        return exact_frequencies(dim, base) / self.factor


@dataclass(frozen=True)
class NTK(RopeScaling):
    """NTK-aware: base·α^(d/(d-2)), so the fastest frequency stays and the slowest is divided by α (bloc97 2023;
    Peng et al. 2023, section 3.1)."""

    alpha: float

    def check(self, name: str, dim: int) -> None:
        """Contexts grow; with one pair the fastest frequency is the slowest."""
        _refuse_below_one(name, "alpha", self.alpha)
        _refuse_one_pair(name, dim)

    def table(self, dim: int, base: float) -> Tensor:
        """The frequencies of the larger base."""
        return exact_frequencies(dim, base * self.alpha ** (dim / (dim - 2)))


@dataclass(frozen=True)
class DynamicNTK(RopeScaling):
    """NTK-aware with α = factor·n/original - (factor - 1) for the n tokens there are, if more than `original`
    (emozilla 2023; Peng et al. 2023, appendix B.3).

    n counts the past. Keys in a cache stay as they were turned, as in transformers: above `original`, cached steps are
    not the full pass.
    """

    factor: float
    original: int

    def check(self, name: str, dim: int) -> None:
        """Contexts grow; with one pair the fastest frequency is the slowest."""
        _refuse_below_one(name, "factor", self.factor)
        _refuse_below_one(name, "original", self.original)
        _refuse_one_pair(name, dim)

    def table(self, dim: int, base: float) -> Tensor:
        """Three rows: frequencies, the powers of 1/α that they are multiplied by, 0 … 1, and the factor."""
        plain = exact_frequencies(dim, base)
        powers = torch.arange(0, dim, 2, dtype=torch.float64) / (dim - 2)
        return torch.stack((plain, powers, torch.full_like(plain, self.factor)))

    def rates(self, table: Tensor, positions: Tensor) -> Tensor:
        """(base·α^(d/(d-2)))^(-2i/d) = base^(-2i/d) · α^(-2i/(d-2))."""
        growth = (lengths(positions).to(table.dtype) / self.original).clamp(min=1)  # B, 1, 1, 1
        plain, powers, factor = table.unbind()
        return plain * (factor * (growth - 1) + 1) ** -powers


@dataclass(frozen=True)
class Yarn(RopeScaling):
    """YaRN: pairs that turn more than `fast` times in `original` tokens stay, those that turn less than `slow` times
    are interpolated, and between the two a ramp over the pairs (Peng et al. 2023, section 3.2).

    Scores grow by (0.1·ln(factor) + 1)², the paper's attention temperature; `attention` replaces its root. `truncate`
    rounds the ends of the ramp outwards to whole pairs, as the authors' code does.
    """

    factor: float
    original: int
    fast: float = 32.0
    slow: float = 1.0
    attention: float | None = None
    truncate: bool = True

    @property
    def temperature(self) -> float:
        """√(1/t) of the paper."""
        return self.root() if self.attention is None else self.attention

    def root(self, weight: float = 1.0) -> float:
        """0.1·weight·ln(factor) + 1, which DeepSeek-V2 takes with weights of its own."""
        return 0.1 * weight * log(self.factor) + 1

    def check(self, name: str, dim: int) -> None:
        """Contexts grow, and the ramp goes down."""
        _refuse_below_one(name, "factor", self.factor)
        _refuse_below_one(name, "original", self.original)
        if self.fast <= self.slow:
            raise ConfigError(f"{name}: YaRN's fast {self.fast} is not above its slow {self.slow}")

    def table(self, dim: int, base: float) -> Tensor:
        """A mixture of plain and interpolated frequencies."""
        plain = exact_frequencies(dim, base)
        first, last = self._pair(self.fast, dim, base), self._pair(self.slow, dim, base)
        if self.truncate:
            first, last = floor(first), ceil(last)
        first, last = max(first, 0), min(last, dim - 1)
        last = last if last != first else last + 0.001  # a step where the ramp has no width
        ramp = ((torch.arange(dim // 2, dtype=torch.float64) - first) / (last - first)).clamp(0, 1)
        return plain * (1 - ramp) + plain / self.factor * ramp

    def _pair(self, turns: float, dim: int, base: float) -> float:
        """The index, not whole, of the pair that turns this often in `original` tokens."""
        return dim * log(self.original / (turns * 2 * pi)) / (2 * log(base))


@dataclass(frozen=True)
class Llama3(RopeScaling):
    """Llama 3.1's rule: pairs with at least `high` turns in `original` tokens stay, those with less than `low` are
    divided by `factor`, and between the two a ramp over the number of turns (Grattafiori et al. 2024, section 3.4.2;
    the formula is that of the released code, `apply_scaling`)."""

    factor: float
    original: int
    low: float = 1.0
    high: float = 4.0

    def check(self, name: str, dim: int) -> None:
        """Contexts grow, and the ramp goes up."""
        _refuse_below_one(name, "factor", self.factor)
        _refuse_below_one(name, "original", self.original)
        if self.high <= self.low:
            raise ConfigError(f"{name}: Llama 3's high {self.high} is not above its low {self.low}")

    def table(self, dim: int, base: float) -> Tensor:
        """A mixture of plain and interpolated frequencies."""
        plain = exact_frequencies(dim, base)
        turns = self.original * plain / (2 * pi)
        keep = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return plain * keep + plain / self.factor * (1 - keep)


@dataclass(frozen=True)
class LongRope(RopeScaling):
    """LongRoPE: a factor of its own for each pair, one set up to `original` tokens and one above (Ding et al. 2024).

    `factor` is the growth of the context; scores grow by 1 + ln(factor)/ln(original). Cached keys stay as they were
    turned, so steps across `original` are not the full pass. `attention` replaces the root of the growth of scores.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    factor: float
    original: int
    attention: float | None = None

    @property
    def temperature(self) -> float:
        """The root of what scores grow by."""
        return sqrt(1 + log(self.factor) / log(self.original)) if self.attention is None else self.attention

    def check(self, name: str, dim: int) -> None:
        """A factor for each pair."""
        _refuse_below_one(name, "factor", self.factor)
        _refuse_below_one(name, "original", self.original - 1)  # ln(original) divides
        for which in ("short", "long"):
            if len(getattr(self, which)) != dim // 2:
                raise ConfigError(f"{name}: {which} has {len(getattr(self, which))} factors for {dim // 2} pairs")

    def table(self, dim: int, base: float) -> Tensor:
        """Two rows: for short and for long."""
        return exact_frequencies(dim, base) / torch.tensor((self.short, self.long), dtype=torch.float64)

    def rates(self, table: Tensor, positions: Tensor) -> Tensor:
        """The row for each sequence's length."""
        return torch.where(lengths(positions) > self.original, table[1], table[0])


def lengths(positions: Tensor) -> Tensor:
    """Tokens of each row so far, past included, for positions (B, m): (B, 1, 1, 1)."""
    return positions.amax(dim=1)[:, None, None, None] + 1


def _refuse_below_one(name: str, field: str, value: float) -> None:
    if value < 1:
        raise ConfigError(f"{name}: RoPE scaling's {field} {value} is below 1")


def _refuse_one_pair(name: str, dim: int) -> None:
    if dim < 4:
        raise ConfigError(f"{name}: NTK scaling needs two pairs of dimensions, and the rotary size is {dim}")
