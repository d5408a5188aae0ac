"""Feed-forward layers: MLP and gated units, position by position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from .config import ConfigError

if TYPE_CHECKING:
    from .config import ModelConfig, Sizes

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}

# The names that Hugging Face's configurations use.
HF_ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
}


@dataclass(frozen=True)
class MLP:
    """W₂·a(W₁·x + b₁) + b₂ (Vaswani et al. 2017, section 3.3; GELU: Hendrycks and Gimpel 2016)."""

    activation: Activation
    hidden: int

    def check(self, config: ModelConfig) -> None:
        """The hidden size must be one."""
        _check_hidden(config, self.hidden)

    def build(self, config: ModelConfig) -> nn.Module:
        """(B, m, dim) → (B, m, dim)."""
        return MLPLayer(config, self)

    def flops(self, config: ModelConfig, tokens: int) -> int:
        """Two matrices."""
        return 2 * tokens * 2 * config.dim * self.hidden

    def scaled(self, before: ModelConfig, after: Sizes) -> MLP:
        """The hidden size keeps its ratio to dim."""
        return replace(self, hidden=self.hidden * after.dim // before.dim)


class MLPLayer(nn.Module):
    """Up, activate, down."""

    def __init__(self, config: ModelConfig, spec: MLP) -> None:
        super().__init__()
        self.up = nn.Linear(config.dim, spec.hidden, bias=config.biases.ffn)
        self.down = nn.Linear(spec.hidden, config.dim, bias=config.biases.ffn)
        self.activation = ACTIVATIONS[spec.activation]

    def forward(self, x: Tensor) -> Tensor:
        """(B, m, dim) → (B, m, dim)."""
        y: Tensor = self.down(self.activation(self.up(x)))
        return y


@dataclass(frozen=True)
class GLU:
    """W₂·(a(W_gate·x) ⊙ W_up·x): SwiGLU with silu, GeGLU with gelu (Shazeer 2020)."""

    activation: Activation
    hidden: int

    def check(self, config: ModelConfig) -> None:
        """The hidden size must be one."""
        _check_hidden(config, self.hidden)

    def build(self, config: ModelConfig) -> nn.Module:
        """(B, m, dim) → (B, m, dim)."""
        return GLULayer(config, self)

    def flops(self, config: ModelConfig, tokens: int) -> int:
        """Three matrices."""
        return 2 * tokens * 3 * config.dim * self.hidden

    def scaled(self, before: ModelConfig, after: Sizes) -> GLU:
        """The hidden size keeps its ratio to dim."""
        return replace(self, hidden=self.hidden * after.dim // before.dim)


class GLULayer(nn.Module):
    """Gate and up, multiply, down."""

    def __init__(self, config: ModelConfig, spec: GLU) -> None:
        super().__init__()
        self.gate = nn.Linear(config.dim, spec.hidden, bias=config.biases.ffn)
        self.up = nn.Linear(config.dim, spec.hidden, bias=config.biases.ffn)
        self.down = nn.Linear(spec.hidden, config.dim, bias=config.biases.ffn)
        self.activation = ACTIVATIONS[spec.activation]

    def forward(self, x: Tensor) -> Tensor:
        """(B, m, dim) → (B, m, dim)."""
        y: Tensor = self.down(self.activation(self.gate(x)) * self.up(x))
        return y


@dataclass(frozen=True)
class NoFeedForward:
    """No feed-forward layer, for stacked recurrent networks."""

    def check(self, config: ModelConfig) -> None:
        """Only a stack without residuals can leave the layer out: elsewhere the identity would be added."""
        if config.residual != "none":
            raise ConfigError(f"{config.name}: residual {config.residual!r} needs a feed-forward layer")

    def build(self, config: ModelConfig) -> nn.Module:
        """The identity."""
        return nn.Identity()

    def flops(self, config: ModelConfig, tokens: int) -> int:
        """Nothing."""
        return 0

    def scaled(self, before: ModelConfig, after: Sizes) -> NoFeedForward:
        """Still nothing."""
        return self


def _check_hidden(config: ModelConfig, hidden: int) -> None:
    if hidden < 1:
        raise ConfigError(f"{config.name}: feed-forward hidden size {hidden} is below 1")
