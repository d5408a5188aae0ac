"""What comes after the last layer: the language-model head, and BERT's pooler.

Shapes: B batch, m new tokens, n tokens, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .config import ModelConfig
from .embedding import TokenEmbedding, root


class Head(nn.Module):
    """Logits from states; a tied head shares the table of the word embedding."""

    def __init__(self, config: ModelConfig, embedding: TokenEmbedding) -> None:
        super().__init__()
        self.linear = nn.Linear(config.dim, config.vocab, bias=config.biases.head)
        self.scale = config.scale_logits
        self.softcap = config.logit_softcap
        if config.tie_embeddings:
            self.linear.weight = embedding.word.weight

    def forward(self, x: Tensor) -> Tensor:
        """(B, m, dim) → (B, m, V)."""
        y: Tensor = self.linear(x / root(x) if self.scale else x)
        return y if self.softcap is None else self.softcap * torch.tanh(y / self.softcap)


class Pooler(nn.Module):
    """tanh(W·h₀ + b): the first token's state speaks for the sequence (BERT, Devlin et al. 2019)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.linear = nn.Linear(config.dim, config.dim)

    def forward(self, x: Tensor) -> Tensor:
        """States (B, n, dim) → (B, dim)."""
        return torch.tanh(self.linear(x[:, 0]))
