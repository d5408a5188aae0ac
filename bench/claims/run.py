"""Every experiment in turn, in one process, with one watch."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import import_module
from pkgutil import iter_modules
from statistics import median

import torch

from ..environment import describe
from ..timing import block, warm_up
from . import experiments
from .outcome import Call, Claim, Part, Result, Results, Watch

ROUNDS = 7  # blocks of each call


def claims() -> tuple[Claim, ...]:
    """All claims of the folder `experiments`, then all errors, each by number."""
    modules = (import_module(f"{experiments.__name__}.{found.name}") for found in iter_modules(experiments.__path__))
    return tuple(sorted((claim for module in modules for claim in module.CLAIMS), key=lambda claim: claim.order))


def watch(calls: Mapping[str, Call], seconds: float = 0.4) -> Mapping[str, tuple[float, ...]]:
    """Warm every call up, then alternate blocks of all in shuffled order (timing.py), in CPU time of this thread.

    The calls run on this thread alone, so what else the machine does costs them caches, but no time on this clock.
    """
    shuffled, clock = random.Random(0), time.thread_time_ns
    for call in calls.values():
        warm_up(call, limit_s=seconds / 4, clock=clock)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in shuffled.sample(list(calls), len(calls)):
            times[name].append(median(block(calls[name], seconds=seconds / ROUNDS, clock=clock)))
    return {name: tuple(medians) for name, medians in times.items()}


def run(chosen: Iterable[Claim], watch: Watch = watch) -> Iterator[Result]:
    """One result after another, on one thread; an experiment that fails is a result with a reason.

    The statements are about operations, which more threads only blur: those of small ones wait for each other.
    """
    torch.set_num_threads(1)
    for claim in chosen:
        torch.manual_seed(0)
        yield _result(claim, watch)


def gathered(results: Iterable[Result]) -> Results:
    """Results with their place and time."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Results(created=created, environment=describe(1), results=tuple(results))


def _result(claim: Claim, watch: Watch) -> Result:
    began, reason = time.perf_counter(), None
    parts: tuple[Part, ...] = ()
    try:
        with torch.no_grad():
            parts = tuple(claim.experiment(watch))
    except Exception as error:  # the boundary: a failed experiment is a row with a reason, and the others go on
        reason = f"{type(error).__name__}: {error}"
    return Result(
        key=claim.key,
        kind=claim.kind,
        statement=claim.statement,
        right=claim.right,
        parts=parts,
        seconds=round(time.perf_counter() - began, 2),
        reason=reason,
    )
