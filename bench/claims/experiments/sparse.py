"""Claims 15, 16 and 17: tiled, windowed and sparse attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from ....models.attention import Softmax
from ....models.bigbird import BigBird
from ....models.config import Mixer
from ....models.longformer import Longformer
from ....models.presets import PRESETS
from ....models.tiled import Tiled
from ....models.window import Window
from ..outcome import Claim, Part, Watch
from ..tools import MIB, exponent, layer, listed, medians, most, operations, peak_bytes

LENGTHS = (1024, 2048, 4096)
WIDTH = 128


def tiled(_: Watch) -> Sequence[Part]:
    """Peak memory of one layer with all scores and with blocks of them, and the results of both."""
    naive, blocks = layer(Softmax(), heads=1), layer(Tiled(block=WIDTH), heads=1)
    memory = {name: {n: peak_bytes(sized(n)) for n in LENGTHS} for name, sized in (("naive", naive), ("tiled", blocks))}
    slopes = {name: exponent(found) for name, found in memory.items()}
    gap = difference(Softmax(), Tiled(block=WIDTH))
    return (
        Part("Naive attention needs O(n²) memory", slopes["naive"] > 1.85, _memory("naive", memory, slopes)),
        Part("Tiled attention needs O(n)", slopes["tiled"] < 1.15, _memory("tiled", memory, slopes)),
        Part(
            "The result is the same", gap < 1e-12, f"largest difference {gap:.1e} in float64, n = 1000, block {WIDTH}"
        ),
    )


def _memory(name: str, memory: dict[str, dict[int, int]], slopes: dict[str, float]) -> str:
    sizes = {n: size / MIB for n, size in memory[name].items()}
    return f"peak MiB by n: {listed(sizes)}: exponent {slopes[name]:.2f}"


def difference(one: Any, other: Any, mask: Any = None) -> float:
    """The largest difference of two mixers with the same weights, in float64; `mask` (n, n) is for the first."""
    config = PRESETS["gpt2"].scaled(dim=64, heads=4, layers=1)
    a, b = (cast(Any, mixer.build(config, causal=True).double().requires_grad_(False)) for mixer in (one, other))
    b.load_state_dict(a.state_dict())
    x, real = torch.randn(1, 1000, 64, dtype=torch.float64), torch.ones(1, 1000, dtype=torch.int64)
    plan = a.plan(real, 1000) if mask is None else mask
    return most(a(x, plan, lambda t: t, ())[0], b(x, b.plan(real, 1000), lambda t: t, ())[0])


def banded(n: int) -> torch.Tensor:
    """The window as a mask over all pairs."""
    gap = torch.arange(n)[:, None] - torch.arange(n)
    return (gap >= 0) & (gap < WIDTH)


def window(watch: Watch) -> Sequence[Part]:
    """The same function twice: by a mask over all scores, and by blocks that skip what is outside."""
    masked, skipping = _masked(), layer(Window(window=WIDTH))
    work = {
        name: {n: operations(sized(n)) for n in LENGTHS} for name, sized in (("masked", masked), ("skipping", skipping))
    }
    calls = {f"{name} {n}": sized(n) for name, sized in (("masked", masked), ("skipping", skipping)) for n in LENGTHS}
    times = watch(calls)
    timed = {name: exponent(medians(times, LENGTHS, name)) for name in work}
    counted = {name: exponent(found) for name, found in work.items()}
    last = LENGTHS[-1]
    gain = medians(times, LENGTHS, "masked")[last] / medians(times, LENGTHS, "skipping")[last]
    gap = difference(Softmax(), Window(window=WIDTH), banded(1000))
    span = f"n = {LENGTHS[0]}…{last}"
    return (
        Part("Both are the same function", gap < 1e-12, f"largest difference {gap:.1e} in float64, W = {WIDTH}"),
        Part(
            "O(n·W) when what is outside is skipped",
            counted["skipping"] < 1.05 and timed["skipping"] < 1.4,
            f"exponents over {span}: {counted['skipping']:.2f} in operations, {timed['skipping']:.2f} in time",
        ),
        Part(
            "A mask alone saves nothing",
            counted["masked"] > counted["skipping"] + 0.4,
            f"masked, over {span}: {counted['masked']:.2f} in operations, {timed['masked']:.2f} in time; {gain:.1f}× "
            f"slower at n = {last}",
        ),
    )


def _masked() -> Any:
    config = PRESETS["gpt2"].scaled(dim=64, heads=4, layers=1)
    module: Any = Softmax().build(config, causal=True).requires_grad_(False)

    def sized(n: int) -> Any:
        x, mask = torch.randn(1, n, 64), banded(n)
        return lambda: module(x, mask, lambda turned: turned, ())[0]

    return sized


def sparse(watch: Watch) -> Sequence[Part]:
    """Longformer and BigBird, one layer each: operations and time."""
    kinds: dict[str, Mixer] = {"Longformer": Longformer(window=WIDTH), "BigBird": BigBird(block=32, random=3)}
    sized = {name: layer(mixer, causal=False, base="bert-base") for name, mixer in kinds.items()}
    times = watch({f"{name} {n}": call(n) for name, call in sized.items() for n in LENGTHS})
    parts = []
    for name, call in sized.items():
        counted = exponent({n: operations(call(n)) for n in LENGTHS})
        timed = exponent(medians(times, LENGTHS, name))
        said = (
            f"exponents over n = {LENGTHS[0]}…{LENGTHS[-1]}: {counted:.2f} in operations, {timed:.2f} in time (torch)"
        )
        parts.append(Part(f"{name} is linear in n", abs(counted - 1) < 0.05 and timed < 1.4, said))
    return parts


CLAIMS = (
    Claim(
        key="15",
        statement="Naive attention needs O(n²) memory, FlashAttention-style (tiled, online softmax) O(n), with the "
        "same result.",
        experiment=tiled,
    ),
    Claim(
        key="16",
        statement="Sliding window: O(n·W) time, if the computation really skips what is outside the window.",
        experiment=window,
    ),
    Claim(key="17", statement="Sparse attention (Longformer, BigBird) is linear in n.", experiment=sparse),
)
