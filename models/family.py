"""Families: how one `model_type` of Hugging Face maps onto these modules, as a table of names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .config import ModelConfig


@dataclass(frozen=True)
class Part:
    """One of `of` equal parts of a checkpoint's module, along its outputs; `transposed`: weights stored (in, out).

    `plus` is added: Gemma stores w and multiplies by 1 + w.
    """

    name: str
    index: int = 0
    of: int = 1
    transposed: bool = False
    plus: float = 0.0

    def take(self, tensor: Tensor) -> Tensor:
        """This part of a weight (out, in) or a bias (out)."""
        upright = tensor.T if self.transposed and tensor.dim() == 2 else tensor
        part = upright.chunk(self.of)[self.index]
        return part.to(torch.promote_types(part.dtype, torch.float32)) + self.plus if self.plus else part


@dataclass(frozen=True)
class PerHead:
    """One of `of` parts of a checkpoint's module where the parts of each head of `size` lie together: q, k, v of the
    first head, then of the second, and so on."""

    name: str
    index: int
    of: int = 3
    size: int = 0  # the model knows it

    def take(self, tensor: Tensor) -> Tensor:
        """This part of a weight (out, in) or a bias (out)."""
        return torch.unflatten(tensor, 0, (-1, self.of, self.size))[:, self.index].flatten(0, 1)


@dataclass(frozen=True)
class PerExpert:
    """A module for each expert, {e} in its name; here they lie side by side along `axis` of one weight."""

    name: str
    axis: int = 0

    def take(self, *experts: Tensor) -> Tensor:
        """The weights of all experts as one."""
        return torch.cat(experts, dim=self.axis)


@dataclass(frozen=True, kw_only=True)
class Family:
    """How one `model_type` of Hugging Face maps onto these modules.

    `config` reads config.json; `modules` maps our module names to theirs, with {i} for the layer; `prefix` may stand
    before their names; `ignored` are patterns of their tensors that have no counterpart here; `refine` adapts the
    configuration to the tensors that are stored, where config.json does not tell.
    """

    model_type: str
    config: Callable[[Mapping[str, Any]], ModelConfig]
    modules: Mapping[str, str | Part | PerHead | PerExpert]
    prefix: str = ""
    ignored: tuple[str, ...] = ()
    refine: Callable[[ModelConfig, Collection[str]], ModelConfig] = lambda config, stored: config
