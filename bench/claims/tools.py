"""What experiments measure with: parameters, operations, live memory, exponents, and models to run."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from ...models.config import Mixer, ModelConfig
from ...models.presets import PRESETS
from ..complexity import slope
from ..timing import compare
from .outcome import Call

MIB = 2**20


def weights(module: nn.Module) -> int:
    """The number of parameters, biases left out."""
    return sum(parameter.numel() for name, parameter in module.named_parameters() if not name.endswith("bias"))


def operations(call: Call) -> int:
    """Floating-point operations of matrix products by torch's counter; attention is taken apart for it."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def peak_bytes(call: Call) -> int:
    """The most bytes that the results of operations inside the call held at one time; attention is taken apart."""
    with sdpa_kernel(SDPBackend.MATH), _Live() as live:
        call()
    peak: int = live.peak
    return peak


class _Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operations make, until they are freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._watch(leaf.untyped_storage(), inputs)
        return result

    def _watch(self, storage: Any, inputs: set[int]) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known or key in inputs:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def exponent(costs: Mapping[int, float]) -> float:
    """The slope of log cost over log n."""
    return slope(tuple(costs), tuple(costs.values()))


def medians(times: Mapping[str, Sequence[float]], lengths: Iterable[int], name: str) -> dict[int, float]:
    """The median of the blocks of "name n" for each n."""
    return {n: median(times[f"{name} {n}"]) for n in lengths}


def speed(base: Sequence[float], other: Sequence[float]) -> tuple[str, str]:
    """The word for `other` against `base`, and the ratio of their times: `1.20× (1.15–1.26, blocks of one process)`.

    Both run in this process alone, so the interval does not hold what another process would differ by, and says so.
    """
    found = compare(base, other)
    between = f"{found.interval.low:.2f}–{found.interval.high:.2f}"
    return found.word, f"{found.ratio:.2f}× ({between}, blocks of one process)"


def preset(name: str, **changes: Any) -> ModelConfig:
    """A preset at the size for tests, with fields changed."""
    return replace(PRESETS[name].at("tiny"), **changes)


def layer(
    mixer: Mixer, *, dim: int = 64, heads: int = 4, causal: bool = True, base: str = "gpt2"
) -> Callable[[int], Call]:
    """A mixer as a function of n: for each n a call that plans and mixes n random tokens of `dim`."""
    config = replace(PRESETS[base].scaled(dim=dim, heads=heads, layers=1), mixer=mixer)
    module = cast(Any, config.mixers[0].build(config, causal=causal).eval().requires_grad_(False))

    def sized(n: int) -> Call:
        x, mask = torch.randn(1, n, dim), torch.ones(1, n, dtype=torch.int64)
        return lambda: module(x, module.plan(mask, n), lambda turned: turned, ())[0]

    return sized


def ids(config: ModelConfig, n: int, batch: int = 1) -> Tensor:
    """Random tokens (batch, n)."""
    return torch.randint(0, config.vocab, (batch, n))


def decode(model: Any, tokens: Tensor, past: Sequence[Any] = (), seen: int = 0) -> tuple[Tensor, list[Any]]:
    """Logits and caches of a decoder for tokens (B, m) after `seen` tokens in `past`."""
    batch, n = tokens.shape
    positions = torch.arange(seen, seen + n).expand(batch, n)
    logits, present = model(tokens, torch.ones(batch, seen + n, dtype=torch.int64), positions, past)
    return logits, present


def most(a: Tensor, b: Tensor) -> float:
    """The largest absolute difference."""
    return float((a - b).abs().max())


def listed(values: Mapping[Any, float], form: str = ".3g") -> str:
    """`64: 1.02, 128: 0.98`."""
    return ", ".join(f"{key}: {value:{form}}" for key, value in values.items())
