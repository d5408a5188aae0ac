"""Mixture of experts: many feed-forward layers, of which each token uses a few.

Shapes: B batch, m tokens, E experts, h hidden size of one expert.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .config import ConfigError
from .feedforward import ACTIVATIONS, GLU, Activation

if TYPE_CHECKING:
    from .config import ModelConfig, Sizes


@dataclass(frozen=True, kw_only=True)
class MoE:
    """Σ gₑ·GLUₑ(x) over the `top_k` experts that a linear router scores highest, plus shared experts for every token.

    The gates g are a softmax over the top-k scores (Mixtral, Jiang et al. 2024, section 2.1: `renormalise`), or the
    largest k of a softmax over all of them, whose sum is below 1 (DeepSeekMoE, Dai et al. 2024, equation 5). Shared
    experts are one GLU of `shared`·h (the same paper, section 3.2).

    Computed densely: all experts, side by side as one GLU of E·h, with a gate of 0 for those not chosen. So a call
    costs E / top_k times the arithmetic that routing would need, and `flops` says so. In return the graph is three
    matrix products in standard operators, right for every routing and free in batch and length: ONNX has no grouped
    matrix product, and gathering experts for each token moves far more bytes than it saves arithmetic in a prefill.

    The choice is discontinuous: where two scores differ by less than rounding, two precisions may choose differently.
    """

    activation: Activation
    hidden: int
    experts: int
    top_k: int
    shared: int = 0
    renormalise: bool = True

    def check(self, config: ModelConfig) -> None:
        """A token can only choose experts that exist, and a choice is one at least."""
        if not 1 <= self.top_k <= self.experts:
            raise ConfigError(f"{config.name}: top_k {self.top_k} is not between 1 and experts {self.experts}")
        if self.shared < 0:
            raise ConfigError(f"{config.name}: shared experts {self.shared} is below 0")
        self._expert().check(config)

    def build(self, config: ModelConfig) -> nn.Module:
        """(B, m, dim) → (B, m, dim)."""
        return MoELayer(config, self)

    def flops(self, config: ModelConfig, tokens: int) -> int:
        """The router, and every expert for every token."""
        router = 2 * tokens * config.dim * self.experts
        return router + (self.experts + self.shared) * self._expert().flops(config, tokens)

    def scaled(self, before: ModelConfig, after: Sizes) -> MoE:
        """Each expert keeps its ratio to dim; there are as many as before."""
        return replace(self, hidden=self._expert().scaled(before, after).hidden)

    def _expert(self) -> GLU:
        return GLU(self.activation, self.hidden)


class MoELayer(nn.Module):
    """Route, and run all experts under their gates."""

    def __init__(self, config: ModelConfig, spec: MoE) -> None:
        super().__init__()
        self.top_k = spec.top_k
        self.renormalise = spec.renormalise
        self.router = nn.Linear(config.dim, spec.experts, bias=False)
        self.experts = Experts(config, spec)
        self.shared = GLU(spec.activation, spec.shared * spec.hidden).build(config) if spec.shared else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, m, dim) → (B, m, dim)."""
        y: Tensor = self.experts(x, self.gates(self.router(x)))
        return y if self.shared is None else y + self.shared(x)

    def gates(self, scores: Tensor) -> Tensor:
        """Scores (B, m, E) → the weight of each expert (B, m, E), 0 where it is not chosen."""
        chosen, index = (scores if self.renormalise else scores.softmax(-1)).topk(self.top_k, dim=-1)
        return torch.zeros_like(scores).scatter(-1, index, chosen.softmax(-1) if self.renormalise else chosen)


class ExpertLinear(nn.Linear):
    """The matrices of all experts side by side; `fan_in` is what one of them reads."""

    def __init__(self, inputs: int, outputs: int, *, experts: int, fan_in: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.experts = experts
        self.fan_in = fan_in


class Experts(nn.Module):
    """All experts as one GLU: expert e has rows e·h … (e + 1)·h - 1 of `gate` and `up`, and these columns of `down`."""

    def __init__(self, config: ModelConfig, spec: MoE) -> None:
        super().__init__()
        dim, width, experts = config.dim, spec.experts * spec.hidden, spec.experts
        self.hidden = spec.hidden
        self.gate = ExpertLinear(dim, width, experts=experts, fan_in=dim)
        self.up = ExpertLinear(dim, width, experts=experts, fan_in=dim)
        self.down = ExpertLinear(width, dim, experts=experts, fan_in=spec.hidden)
        self.activation = ACTIVATIONS[spec.activation]

    def forward(self, x: Tensor, gates: Tensor) -> Tensor:
        """x (B, m, dim), gates (B, m, E) → (B, m, dim): gating the hidden values gates what `down` sums."""
        hidden = self.activation(self.gate(x)) * self.up(x)  # B, m, E·h
        gated = torch.unflatten(hidden, -1, (-1, self.hidden)) * gates[..., None]  # B, m, E, h
        y: Tensor = self.down(gated.flatten(-2))
        return y
