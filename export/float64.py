"""Other people's modules wholly in float64: where their code asks for float32, it gets float64."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

# Their numbers become attributes of an operator, which the arbiter reads as the decimals that were written. So do the
# small ones, the epsilons of norms that are fused.
_DECIMAL = (F.layer_norm, F.rms_norm, F.scaled_dot_product_attention)
_SMALL = 1e-3
_FLOAT32 = float(np.finfo(np.float32).max)


class Float64(TorchFunctionMode):
    """Float64 where code asks for float32, as transformers does in norms, softmax and angles.

    A Python number beside a tensor counts as what float32 code makes of it, float32: that is the constant in the graph.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The function itself, on what `_wide` makes of its arguments."""
        number = _as_is if func in _DECIMAL else _rounded
        func = torch.Tensor.double if func is torch.Tensor.float else func
        wide = {key: _wide(value, number) for key, value in (kwargs or {}).items()}
        return func(*(_wide(value, number) for value in args), **wide)


def _wide(value: Any, number: Callable[[float], float]) -> Any:
    if value is torch.float32:
        return torch.float64
    return number(value) if isinstance(value, float) else value


def _as_is(value: float) -> float:
    return value


def _rounded(value: float) -> float:
    return float(np.float32(value)) if _SMALL <= abs(value) <= _FLOAT32 else value


def exactly(module: nn.Module) -> contextlib.AbstractContextManager[object]:
    """The mode above for a module whose weights are float64, and nothing for another."""
    wide = any(parameter.dtype is torch.float64 for parameter in module.parameters())
    return Float64() if wide else contextlib.nullcontext()
