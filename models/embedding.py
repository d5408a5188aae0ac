"""Token embeddings: ids to vectors, with the additions that some families make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .norm import NO_NORM

if TYPE_CHECKING:
    from .config import ModelConfig, Norm


@dataclass(frozen=True)
class Tokens:
    """A table of token vectors.

    `scale` multiplies by √dim (Vaswani et al. 2017, section 3.4); `token_types` adds a second table for segments and
    `norm` normalises the sum (both BERT, Devlin et al. 2019).
    """

    scale: bool = False
    token_types: int = 0
    norm: Norm = NO_NORM

    def build(self, config: ModelConfig) -> TokenEmbedding:
        """The lookup module; the norm is applied by the model, after positions were added."""
        return TokenEmbedding(config, self)


class TokenEmbedding(nn.Module):
    """ids (batch, tokens), optional token types (batch, tokens) → (batch, tokens, dim)."""

    def __init__(self, config: ModelConfig, spec: Tokens) -> None:
        super().__init__()
        self.word = nn.Embedding(config.vocab, config.dim)
        self.types = nn.Embedding(spec.token_types, config.dim) if spec.token_types else None
        self.scale = spec.scale

    def forward(self, ids: Tensor, types: Tensor | None = None) -> Tensor:
        """Look up, scale, add the token types."""
        x: Tensor = self.word(ids)
        if self.scale:
            x = x * root(x)
        if self.types is not None and types is not None:
            x = x + self.types(types)
        return x


def root(x: Tensor) -> Tensor:
    """√d for x (..., d): (..., 1).

    Taken from a tensor of this call: a graph would round a constant to float32, and be another function in float64.
    """
    return torch.full_like(x[..., :1], x.shape[-1]).sqrt()
