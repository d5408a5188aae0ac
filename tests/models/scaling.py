"""How the cost of one mixer grows with the number of tokens: the operations that torch counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from isorun.models.config import ModelConfig

LENGTHS = (1024, 2048, 4096, 8192)


def exponent(lengths: Iterable[int], costs: Iterable[float]) -> float:
    """The slope of log cost over log length."""
    slope, _ = np.polyfit(np.log(list(lengths)), np.log(list(costs)), 1)
    return float(slope)


def call(config: ModelConfig, *, causal: bool = False) -> Callable[[int], Tensor]:
    """A function that plans and runs one mixer of a configuration on n random tokens, in float32."""
    torch.manual_seed(0)
    module: nn.Module = config.mixers[0].build(config, causal=causal).eval()

    def run(tokens: int) -> Tensor:
        x, mask = torch.randn(1, tokens, config.dim), torch.ones(1, tokens, dtype=torch.int64)
        with torch.no_grad():
            y: Tensor = module(x, module.plan(mask, tokens), lambda rotated: rotated, ())[0]  # type: ignore[operator]
        return y

    return run


def counted(run: Callable[[int], Tensor], tokens: int) -> int:
    """Operations by torch's counter; MATH is the attention whose matrix products it sees."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run(tokens)
    return counter.get_total_flops()
