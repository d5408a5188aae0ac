"""What the machine itself does, measured before any model: the rates of each runtime's products, and its overhead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..models.yardstick import BYTES, FLOPS
from .measure import Bench

BUDGET_S = 0.2
# Factories in models/yardstick.py, and what they tell about the machine, each by runtime: operations and bytes a
# nanosecond, and the nanoseconds of a call that computes nothing, which is what harness and runtime cost alone.
MATMUL, MATVEC, NOTHING = "matmul", "matvec", "nothing"
FACTS = {MATMUL: "matmul_gflops", MATVEC: "memory_gbs", NOTHING: "overhead_ns"}


def missing(machine: Mapping[str, Any]) -> list[str]:
    """The yardsticks whose facts are not among those of a machine."""
    return [name for name, key in FACTS.items() if key not in machine]


def measure(folder: Path, runtimes: Sequence[str], threads: int) -> dict[str, dict[str, float | None]]:
    """The facts of this machine by the yardsticks that were exported into a folder, on each runtime."""
    with Bench(folder / MATMUL, runtimes, threads, folder) as bench:
        flops = bench.rate(FLOPS, BUDGET_S)
        bench.turn_to(folder / MATVEC)
        moved = bench.rate(BYTES, BUDGET_S)
        bench.turn_to(folder / NOTHING)
        return {FACTS[MATMUL]: flops, FACTS[MATVEC]: moved, FACTS[NOTHING]: bench.call_ns(BUDGET_S)}


def peak(machine: Mapping[str, Any]) -> float | None:
    """Operations a nanosecond that the best of the runtimes reaches, in float32."""
    return max(filter(None, (machine.get(FACTS[MATMUL]) or {}).values()), default=None)


def rates(machine: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Operations and bytes a nanosecond of each runtime for which both are known."""
    flops, moved = (machine.get(FACTS[name]) or {} for name in (MATMUL, MATVEC))
    return {name: (rate, moved[name]) for name, rate in flops.items() if rate and moved.get(name)}
