"""A bare matrix product, exported and timed like any model: the rate that a runtime's own library reaches here."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .signature import Signature, TensorSpec

SIDE = 1024
FLOPS = 2 * SIDE**3


class MatMul(nn.Module):
    """x·W with both (1024, 1024): large enough to be bound by arithmetic on any processor."""

    def __init__(self) -> None:
        super().__init__()
        shape = (SIDE, SIDE)
        self.signature = Signature((TensorSpec("x", "float32", shape),), (TensorSpec("y", "float32", shape),))
        self.example: dict[str, int] = {}
        self.weight = nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(0)), requires_grad=False)

    def forward(self, *tensors: Tensor) -> tuple[Tensor]:
        """One x (1024, 1024) → (1024, 1024)."""
        (x,) = tensors
        return (x @ self.weight,)


def matmul() -> MatMul:
    """The factory that the manifest names."""
    return MatMul()
