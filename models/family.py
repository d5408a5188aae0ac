"""Families: how one `model_type` of Hugging Face maps onto these modules, as a table of names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .config import ModelConfig


@dataclass(frozen=True)
class Part:
    """One of `of` equal parts of a checkpoint's module, along its outputs; `transposed`: weights stored (in, out)."""

    name: str
    index: int = 0
    of: int = 1
    transposed: bool = False

    def take(self, tensor: Tensor) -> Tensor:
        """This part of a weight (out, in) or a bias (out)."""
        upright = tensor.T if self.transposed and tensor.dim() == 2 else tensor
        return upright.chunk(self.of)[self.index]


@dataclass(frozen=True, kw_only=True)
class Family:
    """How one `model_type` of Hugging Face maps onto these modules.

    `config` reads config.json; `modules` maps our module names to theirs, with {i} for the layer; `prefix` may stand
    before their names; `ignored` are patterns of their tensors that have no counterpart here.
    """

    model_type: str
    config: Callable[[Mapping[str, Any]], ModelConfig]
    modules: Mapping[str, str | Part]
    prefix: str = ""
    ignored: tuple[str, ...] = ()
