"""Where the threads of a timed process run: each on a core of its own, the same cores for every runtime.

Processes that stay on different cores differ by what else these have to do: on two cores of an EPYC, pairs of processes
of one decode step on one thread differed by 2.7 % (standard deviation), and by 2.0 % on one and the same core.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TASKS = Path("/proc/self/task")


class Cores:
    """As many of the cores that this process may use as it computes with threads, the last ones."""

    def __init__(self, threads: int) -> None:
        known = hasattr(os, "sched_setaffinity") and TASKS.exists()
        self._cores = sorted(os.sched_getaffinity(0))[-threads:] if known else []

    def __str__(self) -> str:
        return ", ".join(map(str, self._cores)) or "all"

    @contextmanager
    def bound(self) -> Iterator[None]:
        """Afterwards, bind each of the threads that have worked the most to one of the cores."""
        before = _worked()
        yield
        spent = {task: worked - before.get(task, 0) for task, worked in _worked().items()}
        busiest = sorted(spent, key=lambda task: spent[task], reverse=True)[: len(self._cores)]
        for task, core in zip(sorted(busiest), self._cores, strict=False):
            with suppress(ProcessLookupError):  # a thread that has ended meanwhile
                os.sched_setaffinity(task, {core})


def _worked() -> dict[int, int]:
    """Nanoseconds that each thread of this process has run, where the system tells."""
    found = {}
    for task in TASKS.iterdir() if TASKS.exists() else ():
        with suppress(OSError, ValueError):  # it has ended, or the kernel keeps no count
            found[int(task.name)] = int((task / "schedstat").read_text().split()[0])
    return found
