"""What the machine itself does, measured before any model: the rates of each runtime's products, and its overhead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models.yardstick import BYTES, FLOPS
from .beside import Base
from .measure import Bench, on_cuda
from .plausible import FLOAT, GFLOPS, PRECISIONS, gflops, of_precision

BUDGET_S = 0.2
# Factories in models/yardstick.py, and what they tell about the machine, each by runtime: operations and bytes a
# nanosecond, and the nanoseconds of a call that computes nothing, which is what harness and runtime cost alone.
MATVEC, NOTHING = "matvec", "nothing"
FACTS = {**dict.fromkeys(FLOPS, GFLOPS), MATVEC: "memory_gbs", NOTHING: "overhead_ns"}
HALVES = ("fp16", "bf16")  # precisions with products of their own; a byte takes as long in each of them


@dataclass(frozen=True)
class Yardstick:
    """One factory in one precision."""

    factory: str
    dtype: str = FLOAT

    @property
    def name(self) -> str:
        """Folder name of its export."""
        return self.factory if self.dtype == FLOAT else f"{self.factory}-{self.dtype}"


def missing(machine: Mapping[str, Any], dtypes: Sequence[str], runtimes: Sequence[str]) -> list[Yardstick]:
    """The yardsticks of a run whose facts are not among those of a machine.

    Quantised graphs have none: how much faster their products are depends on more than the machine.
    """
    cuda = any(map(on_cuda, runtimes))
    halves = [dtype for dtype in dtypes if dtype in HALVES]
    wanted = [Yardstick(factory) for factory in ("matmul_large" if cuda else "matmul", MATVEC, NOTHING)]
    wanted += [Yardstick("matmul_large" if cuda else "matmul_small", dtype) for dtype in halves]
    return [yardstick for yardstick in wanted if FACTS[yardstick.factory] not in of_precision(machine, yardstick.dtype)]


def measure(
    machine: dict[str, Any],
    yardsticks: Sequence[Yardstick],
    folder: Path,
    runtimes: Sequence[str],
    threads: int,
    base: Base | None = None,
) -> None:
    """Add what the yardsticks that were exported into a folder tell, on each runtime, to the facts of a machine."""
    if not yardsticks:
        return
    with Bench(folder / yardsticks[0].name, runtimes, threads, folder, base=base) as bench:
        for place, yardstick in enumerate(yardsticks):
            if place:
                bench.turn_to(folder / yardstick.name)
            facts = machine
            if yardstick.dtype != FLOAT:
                facts = machine.setdefault(PRECISIONS, {}).setdefault(yardstick.dtype, {})
            facts[FACTS[yardstick.factory]] = _told(bench, yardstick)


def rates(machine: Mapping[str, Any], dtype: str) -> dict[str, tuple[float, float]]:
    """Operations in a precision, and bytes, a nanosecond of each runtime for which both are known."""
    moved = machine.get(FACTS[MATVEC]) or {}
    return {name: (rate, moved[name]) for name, rate in gflops(machine, dtype).items() if rate and moved.get(name)}


def _told(bench: Bench, yardstick: Yardstick) -> dict[str, float | None]:
    if yardstick.factory == NOTHING:
        return bench.call_ns(BUDGET_S)
    if yardstick.factory == MATVEC:
        return bench.rate(BYTES, BUDGET_S)
    return bench.rate(FLOPS[yardstick.factory], BUDGET_S)
