"""ModelConfig: one frozen description of an architecture, and the protocols of its axes.

A field is an axis. A component axis holds a spec (a small frozen dataclass that builds its module and counts its cost),
never a string that somebody else has to interpret.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from struct import pack, unpack
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from .signature import Dim

if TYPE_CHECKING:
    from torch import Tensor, nn

    from .embedding import Tokens
    from .position import PositionEncoding

Topology = Literal["encoder", "decoder", "encoder-decoder"]
Residual = Literal["post", "pre", "sandwich", "parallel", "parallel2", "none"]
Rotate = Callable[["Tensor"], "Tensor"]
Spec = TypeVar("Spec")


class ConfigError(ValueError):
    """A configuration that no model can have; the message names the values that do not go together."""


@dataclass(frozen=True, kw_only=True)
class Bias:
    """Which linear layers have a bias: to query, key and value, back from the heads, feed-forward, and the head."""

    qkv: bool = False
    out: bool = False
    ffn: bool = False
    head: bool = False


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a model that `scaled` may change."""

    dim: int
    layers: int
    heads: int
    vocab: int
    context: int


@dataclass(frozen=True)
class CacheTensor:
    """One tensor that a layer keeps between steps; the free axes of `shape` are "batch" and "past"."""

    name: str
    shape: tuple[Dim, ...]


class Norm(Protocol):
    """Normalisation over the last axis."""

    def build(self, dim: int) -> nn.Module:
        """A module (..., dim) → (..., dim)."""


class FeedForward(Protocol):
    """The position-wise part of a block."""

    def check(self, config: ModelConfig) -> None:
        """Refuse an impossible combination with ConfigError."""

    def build(self, config: ModelConfig) -> nn.Module:
        """A module (batch, tokens, dim) → the same."""

    def flops(self, config: ModelConfig, tokens: int) -> int:
        """Floating-point operations for `tokens` tokens; a multiply-add is two."""

    def scaled(self, before: ModelConfig, after: Sizes) -> FeedForward:
        """The same choice at another size."""


class Position(Protocol):
    """How a model knows where a token stands."""

    def check(self, config: ModelConfig) -> None:
        """Refuse an impossible combination with ConfigError."""

    def build(self, config: ModelConfig) -> PositionEncoding:
        """The module that adds to embeddings, rotates queries and keys, or does neither."""

    def limit(self, config: ModelConfig) -> int | None:
        """The largest number of tokens (past included), or None where there is no table to run out of."""

    @property
    def uses_ids(self) -> bool:
        """Whether a decoder needs `position_ids`."""


class Mixer(Protocol):
    """What moves information between tokens."""

    def check(self, config: ModelConfig) -> None:
        """Refuse an impossible combination with ConfigError."""

    def build(self, config: ModelConfig, *, causal: bool) -> nn.Module:
        """A module with `plan(mask, tokens, bias)` and `forward(x, plan, rotate, past)`; see attention.py."""

    def flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """What the module really computes for `queries` new tokens that see `keys` tokens; a multiply-add is two."""

    @property
    def general_tokens(self) -> int:
        """The fewest tokens at which no part of the computation is empty or single; a shorter trace is special."""

    def cache(self, config: ModelConfig) -> tuple[CacheTensor, ...]:
        """What one layer keeps between steps."""

    def scaled(self, before: ModelConfig, after: Sizes) -> Mixer:
        """The same choice at another size."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One architecture.

    `layers` counts each stack of an encoder-decoder; `context` is the published context length; `source` names the
    paper or model card that the numbers come from. A tuple of mixers or feed-forward layers is a cycle over the layers.
    `head_size` is given where a head is not dim / heads wide. `bias` is one answer for all layers but the head, or one
    for each kind. `scale_logits` divides logits by √dim (PaLM and T5, whose head is the table of the embedding);
    `logit_softcap` bends them to ±cap (Gemma 2). `pooler` adds BERT's output for the whole sequence.

    Raises:
        ConfigError: sizes that do not go together, with the values.
    """

    name: str
    source: str
    topology: Topology
    dim: int
    layers: int
    heads: int
    vocab: int
    context: int
    embedding: Tokens
    mixer: Mixer | tuple[Mixer, ...]
    position: Position
    norm: Norm
    ffn: FeedForward | tuple[FeedForward, ...]
    residual: Residual
    bias: bool | Bias = True
    tie_embeddings: bool = True
    head_size: int | None = None
    scale_logits: bool = False
    logit_softcap: float | None = None
    pooler: bool = False

    def __post_init__(self) -> None:
        for size in Sizes.__annotations__:
            if getattr(self, size) < 1:
                raise ConfigError(f"{self.name}: {size} {getattr(self, size)} is below 1")
        if self.head_size is None and self.dim % self.heads:
            raise ConfigError(f"{self.name}: heads {self.heads} does not divide dim {self.dim}")
        if self.residual.startswith("parallel") and self.topology == "encoder-decoder":
            raise ConfigError(f"{self.name}: a parallel block has no place for cross-attention ({self.topology})")
        for axis in ("mixer", "ffn"):
            if getattr(self, axis) == ():
                raise ConfigError(f"{self.name}: {axis} is a cycle with no entry")
        if self.pooler and self.topology != "encoder":
            raise ConfigError(f"{self.name}: a pooler reads an encoder's first token, and this is a {self.topology}")
        self.position.check(self)
        for mixer in self.mixers:
            mixer.check(self)
        for ffn in self.ffns:
            ffn.check(self)

    @property
    def head_dim(self) -> int:
        """Size of one attention head."""
        return self.head_size or self.dim // self.heads

    @property
    def biases(self) -> Bias:
        """Which linear layers have a bias."""
        return self.bias if isinstance(self.bias, Bias) else Bias(qkv=self.bias, out=self.bias, ffn=self.bias)

    @property
    def mixers(self) -> tuple[Mixer, ...]:
        """The mixer of each layer."""
        return _cycle(self.mixer, self.layers)

    @property
    def ffns(self) -> tuple[FeedForward, ...]:
        """The feed-forward layer of each layer."""
        return _cycle(self.ffn, self.layers)

    @property
    def max_tokens(self) -> int | None:
        """The largest number of tokens, past included, that the position encoding allows; None: no limit."""
        return self.position.limit(self)

    def scaled(self, **sizes: int) -> ModelConfig:
        """The same architecture at other `dim`, `layers`, `heads`, `vocab`, `context`; the rest keeps its ratio."""
        after = Sizes(**{field: getattr(self, field) for field in Sizes.__annotations__} | sizes)
        return replace(
            self,
            **asdict(after),
            mixer=_each(self.mixer, lambda mixer: mixer.scaled(self, after)),
            ffn=_each(self.ffn, lambda ffn: ffn.scaled(self, after)),
            head_size=self._scaled_head_size(after),
        )

    def _scaled_head_size(self, after: Sizes) -> int | None:
        """A head size of its own keeps its ratio to dim / heads, rounded to an even number for RoPE."""
        if self.head_size is None:
            return None
        return max(2, round(self.head_size * self.heads * after.dim / (self.dim * after.heads) / 2) * 2)

    def at(self, size: Size) -> ModelConfig:
        """One of the three named sizes: `tiny` for tests, `small` for a bench on a CPU, `full` as published."""
        if size == "full":
            return self
        sizes = SIZES[size]
        return self.scaled(**{**sizes, "context": min(sizes["context"], self.context)})


Size = Literal["tiny", "small", "full"]
SIZES: dict[str, dict[str, int]] = {
    "tiny": {"dim": 64, "layers": 2, "heads": 8, "vocab": 256, "context": 128},
    "small": {"dim": 256, "layers": 4, "heads": 8, "vocab": 4096, "context": 2048},
    "full": {},
}


def single(value: float) -> float:
    """The float32 nearest to a constant: a graph keeps no more, and the model in float64 must be the same function."""
    nearest: float = unpack("f", pack("f", value))[0]
    return nearest


def _cycle(specs: Spec | tuple[Spec, ...], layers: int) -> tuple[Spec, ...]:
    given = specs if isinstance(specs, tuple) else (specs,)
    return tuple(given[layer % len(given)] for layer in range(layers))


def _each(specs: Spec | tuple[Spec, ...], change: Callable[[Spec], Spec]) -> Spec | tuple[Spec, ...]:
    return tuple(map(change, specs)) if isinstance(specs, tuple) else change(specs)
