"""Blocks: how mixer and feed-forward layer of one layer join the residual stream.

Shapes: B batch, m new tokens.
"""

from __future__ import annotations

from torch import Tensor, nn

from .attention import Cache, CrossAttention
from .config import ModelConfig, Rotate


class NoResidual(nn.Module):
    """f(x): stacked recurrent layers. The base of the ways in which a sublayer f joins the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()

    def enter(self, x: Tensor) -> Tensor:
        """What the sublayer reads."""
        return x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """What the next sublayer gets, from the stream and the sublayer's output."""
        return y


class PreNorm(NoResidual):
    """x + f(norm(x)): the residual stream is never normalised (GPT-2; Xiong et al. 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.norm = config.norm.build(config.dim)

    def enter(self, x: Tensor) -> Tensor:
        """The normalised stream."""
        y: Tensor = self.norm(x)
        return y

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum."""
        return x + y


class PostNorm(NoResidual):
    """norm(x + f(x)): the 2017 Transformer, BERT and GPT-1."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.norm = config.norm.build(config.dim)

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """The normalised sum."""
        z: Tensor = self.norm(x + y)
        return z


class SandwichNorm(PreNorm):
    """x + norm₂(f(norm₁(x))): the sublayer's output is normalised as well (Gemma 2, Riviere et al. 2024, table 1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.norm_after = config.norm.build(config.dim)

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """The stream and the normalised output."""
        z: Tensor = x + self.norm_after(y)
        return z


_JOINTS: dict[str, type[NoResidual]] = {
    "pre": PreNorm,
    "post": PostNorm,
    "sandwich": SandwichNorm,
    "none": NoResidual,
}


class Block(nn.Module):
    """Mixer, cross-attention in the decoder of an encoder-decoder, feed-forward, each joined to the residual stream."""

    def __init__(self, config: ModelConfig, layer: int, *, causal: bool, cross: bool) -> None:
        super().__init__()
        joint = _JOINTS[config.residual]
        self.mixer = config.mixers[layer].build(config, causal=causal)
        self.mixer_joint: NoResidual = joint(config)
        if cross:
            self.cross = CrossAttention(config)
            self.cross_joint: NoResidual = joint(config)
        self.ffn = config.ffns[layer].build(config)
        self.ffn_joint: NoResidual = joint(config)

    def forward(
        self, x: Tensor, plan: object, rotate: Rotate, past: Cache, source: tuple[Tensor, Cache] | None = None
    ) -> tuple[Tensor, Cache]:
        """x (B, m, dim) → (B, m, dim) and the layer's cache; `source` is the source mask with this layer's keys."""
        y, present = self.mixer(self.mixer_joint.enter(x), plan, rotate, past)
        x = self.mixer_joint.leave(x, y)
        if source is not None:
            x = self.cross_joint.leave(x, self.cross.cross(self.cross_joint.enter(x), *source))
        return self.ffn_joint.leave(x, self.ffn(self.ffn_joint.enter(x))), present


class ParallelBlock(nn.Module):
    """x + mixer(norm(x)) + ffn(norm(x)), with one norm (GPT-J, PaLM: Chowdhery et al. 2022), or x + mixer(norm(x)) +
    ffn(norm₂(x)) with two ("parallel2": GPT-NeoX, Black et al. 2022, section 2.1)."""

    def __init__(self, config: ModelConfig, layer: int, *, causal: bool, cross: bool) -> None:
        super().__init__()
        self.norm = config.norm.build(config.dim)
        self.ffn_norm = config.norm.build(config.dim) if config.residual == "parallel2" else None
        self.mixer = config.mixers[layer].build(config, causal=causal)
        self.ffn = config.ffns[layer].build(config)

    def forward(self, x: Tensor, plan: object, rotate: Rotate, past: Cache) -> tuple[Tensor, Cache]:
        """x (B, m, dim) → (B, m, dim) and the layer's cache."""
        h = self.norm(x)
        y, present = self.mixer(h, plan, rotate, past)
        return x + y + self.ffn(h if self.ffn_norm is None else self.ffn_norm(x)), present
