"""Timed like any model, to tell about the machine: two products for its rates, nothing at all for the overhead."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .signature import Signature, TensorSpec

SMALL, SIDE, LARGE, LONG = 256, 1024, 4096, 4096
FLOPS = {"matmul": 2 * SIDE**3, "matmul_small": 2 * SMALL**3, "matmul_large": 2 * LARGE**3}  # operations of a call
BYTES = 4 * LONG**2  # that `matvec` reads


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
    """Square matrices, large enough to be bound by arithmetic on any processor."""
    return Product(SIDE, SIDE)


def matmul_small() -> Product:
    """The same for a processor that has to emulate the precision."""
    return Product(SMALL, SMALL)


def matmul_large() -> Product:
    """The same for an accelerator, which is done with the smaller one before the next call is launched."""
    return Product(LARGE, LARGE)


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
