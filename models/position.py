"""Positions: sinusoidal, learned, rotary.

Shapes: positions (B, m); embeddings (B, m, dim); queries and keys (B, heads, m, head_dim).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from .config import ConfigError, Rotate, single
from .rope_scaling import RopeScaling, frequencies

if TYPE_CHECKING:
    from .config import ModelConfig


class PositionEncoding(nn.Module):
    """Does nothing: the base of the encodings, and the encoding of a model that needs none."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Embeddings with positions added."""
        return x

    def rotation(self, positions: Tensor) -> Rotate:
        """The function that turns queries and keys at these positions."""
        return lambda x: x

    def bias(self, x: Tensor, mask: Tensor, *, causal: bool) -> Tensor | None:
        """What is added to scores, (1 or B, heads, m, t), for x (B, m, dim) and mask (B, t); None: nothing."""
        return None


@dataclass(frozen=True)
class NoPosition:
    """No position encoding, for mixers that see order by themselves."""

    uses_ids = False

    def check(self, config: ModelConfig) -> None:
        """Always possible."""

    def build(self, config: ModelConfig) -> PositionEncoding:
        """The encoding that does nothing."""
        return PositionEncoding()

    def limit(self, config: ModelConfig) -> int | None:
        """No limit."""
        return None


@dataclass(frozen=True)
class Sinusoidal:
    """PE(p, 2i) = sin(p·base^(-2i/dim)), PE(p, 2i+1) = cos(the same), added once (Vaswani et al. 2017, section 3.5)."""

    base: float = 10_000.0
    uses_ids = True

    def check(self, config: ModelConfig) -> None:
        """Sines and cosines come in pairs."""
        if config.dim % 2:
            raise ConfigError(f"{config.name}: dim {config.dim} is odd, and sinusoidal positions come in pairs")

    def build(self, config: ModelConfig) -> PositionEncoding:
        """Computed from the positions, with no table and no limit."""
        return SinusoidalEncoding(frequencies(config.dim, self.base))

    def limit(self, config: ModelConfig) -> int | None:
        """No limit: computed, not looked up."""
        return None


class SinusoidalEncoding(PositionEncoding):
    """Adds interleaved sines and cosines."""

    frequencies: Tensor

    def __init__(self, frequencies: Tensor) -> None:
        super().__init__()
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, m, dim) + PE(positions)."""
        angles = positions[..., None].to(self.frequencies.dtype) * self.frequencies  # B, m, dim/2
        return x + torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


@dataclass(frozen=True)
class Learned:
    """A table of `context` vectors, one a position (Devlin et al. 2019; Radford et al. 2019). It ends at `context`.

    `offset` rows before the first position are never read (2 in RoBERTa, Liu et al. 2019).
    """

    offset: int = 0
    uses_ids = True

    def check(self, config: ModelConfig) -> None:
        """Always possible."""

    def build(self, config: ModelConfig) -> PositionEncoding:
        """The table."""
        return LearnedEncoding(config, self.offset)

    def limit(self, config: ModelConfig) -> int | None:
        """The rows of the table."""
        return config.context


class LearnedEncoding(PositionEncoding):
    """Adds a row of a table."""

    def __init__(self, config: ModelConfig, offset: int) -> None:
        super().__init__()
        self.offset = offset
        self.table = nn.Embedding(config.context + offset, config.dim)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, m, dim) + table[positions + offset]."""
        table: Tensor = self.table(positions + self.offset if self.offset else positions)
        return x + table


@dataclass(frozen=True)
class Rope:
    """Rotary positions: pair i of a head turns by p·base^(-2i/d) (Su et al. 2021).

    Two layouts exist and must not be mixed. They are one function up to a permutation of the weights:

        interleaved   pairs (0, 1) (2, 3) …            RoFormer, GPT-J, the original Llama code
        half          pairs (0, d/2) (1, d/2 + 1) …    GPT-NeoX, Hugging Face's Llama and Mistral

    Where only the first `fraction` of a head turns (GPT-NeoX, GPT-J, ChatGLM), d is the size of that part. `scaling`
    changes the frequencies for long contexts; see rope_scaling.py.
    """

    base: float = 10_000.0
    layout: Literal["half", "interleaved"] = "half"
    fraction: float = 1.0
    scaling: RopeScaling = RopeScaling()  # noqa: RUF009  (frozen)
    uses_ids = True

    def check(self, config: ModelConfig) -> None:
        """Dimensions turn in pairs."""
        size = self.size(config)
        if not 0 < self.fraction <= 1 or size < 2 or size % 2:
            part = f"rotary size {size} ({self.fraction:g} of head_dim {config.head_dim})"
            raise ConfigError(f"{config.name}: {part} is odd or none, and RoPE turns pairs of dimensions")
        self.scaling.check(config.name, size)

    def size(self, config: ModelConfig) -> int:
        """How many dimensions of a head turn: the fraction rounded down, but not for the error of a quotient."""
        return int(config.head_dim * self.fraction + 1e-6)

    def build(self, config: ModelConfig) -> PositionEncoding:
        """The rotation; angles are computed from the positions, so there is no table to run out of."""
        return RotaryEncoding(self, config)

    def limit(self, config: ModelConfig) -> int | None:
        """No limit: computed, not looked up."""
        return None


class RotaryEncoding(PositionEncoding):
    """Turns queries and keys; leaves embeddings alone."""

    frequencies: Tensor

    def __init__(self, spec: Rope, config: ModelConfig) -> None:
        super().__init__()
        self.size = spec.size(config)
        self.partial = self.size < config.head_dim
        self.scaling = spec.scaling
        self.temperature = single(spec.scaling.temperature)
        self.register_buffer("frequencies", spec.scaling.table(self.size, spec.base).float(), persistent=False)
        self.turn = turn_halves if spec.layout == "half" else turn_neighbours

    def rotation(self, positions: Tensor) -> Rotate:
        """The turn at positions (B, m), for x (B, heads, m, head_dim)."""
        rates = self.scaling.rates(self.frequencies, positions)
        angles = positions[:, None, :, None].to(rates.dtype) * rates  # B, 1, m, size/2
        cos, sin = angles.cos(), angles.sin()
        if self.temperature != 1.0:
            cos, sin = cos * self.temperature, sin * self.temperature

        def turned(x: Tensor) -> Tensor:
            if not self.partial:
                return self.turn(x, cos, sin)
            return torch.cat((self.turn(x[..., : self.size], cos, sin), x[..., self.size :]), dim=-1)

        return turned


def turn_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (i, i + d/2)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def turn_neighbours(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (2i, 2i + 1)."""
    a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
