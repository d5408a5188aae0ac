"""Normalisation: LayerNorm and RMSNorm over the last axis."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class LayerNorm:
    """γ·(x - mean) / √(variance + ε) + β (Ba et al. 2016); `shift` is whether there is a β (PaLM has none)."""

    eps: float = 1e-5
    shift: bool = True

    def build(self, dim: int) -> nn.Module:
        """(..., dim) → (..., dim)."""
        return nn.LayerNorm(dim, eps=self.eps, bias=self.shift)


@dataclass(frozen=True)
class RMSNorm:
    """γ·x / √(mean(x²) + ε): LayerNorm without the mean and the shift (Zhang and Sennrich 2019)."""

    eps: float = 1e-6

    def build(self, dim: int) -> nn.Module:
        """(..., dim) → (..., dim)."""
        return nn.RMSNorm(dim, eps=self.eps)


@dataclass(frozen=True)
class NoNorm:
    """No normalisation, for models that have none."""

    def build(self, dim: int) -> nn.Module:
        """The identity."""
        return nn.Identity()


NO_NORM = NoNorm()
