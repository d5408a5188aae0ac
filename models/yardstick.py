"""Timed like any model, to tell about the machine: two products for its rates, nothing at all for the overhead."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .signature import Signature, TensorSpec

SIDE, LONG = 1024, 4096
FLOPS = 2 * SIDE**3
BYTES = 4 * LONG**2


class Product(nn.Module):
    """x (rows, side) · W (side, side)."""

    def __init__(self, rows: int, side: int) -> None:
        super().__init__()
        shape = (rows, side)
        self.signature = Signature((TensorSpec("x", "float32", shape),), (TensorSpec("y", "float32", shape),))
        self.example: dict[str, int] = {}
        weight = torch.randn(side, side, generator=torch.Generator().manual_seed(0))
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, *tensors: Tensor) -> tuple[Tensor]:
        """One x (rows, side) → (rows, side)."""
        (x,) = tensors
        return (x @ self.weight,)


def matmul() -> Product:
    """Square matrices, large enough to be bound by arithmetic on any processor: `FLOPS` operations."""
    return Product(SIDE, SIDE)


def matvec() -> Product:
    """One row, as in a decode step, and weights that few caches hold: bound by `BYTES` bytes of memory."""
    return Product(1, LONG)


class Nothing(nn.Module):
    """Sixteen numbers in, the same out: what a call costs that has nothing to compute."""

    def __init__(self) -> None:
        super().__init__()
        self.signature = Signature((TensorSpec("x", "float32", (16,)),), (TensorSpec("y", "float32", (16,)),))
        self.example: dict[str, int] = {}

    def forward(self, *tensors: Tensor) -> tuple[Tensor]:
        """One x (16) → (16), a copy: a graph's output cannot be its input."""
        (x,) = tensors
        return (x.clone(),)


def nothing() -> Nothing:
    """The factory that the manifest names."""
    return Nothing()
