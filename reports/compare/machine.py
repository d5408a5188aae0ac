"""What the machine did between two runs: the part of a change that may not be the code's.

The runtimes of a length alternate in time, block by block, so a neighbour's work or a lower clock slows all of them,
and the next length none: on a shared machine such a spell may double all times of a length. So what all runtimes of a
length share, which is the least change that each of them shows, is held to be the machine's. It reaches them unevenly,
which `UNEVEN` in noise.py allows for. A runtime alone shares nothing, and blocks of both runs that alternated with each
other saw the same machine.

A change of the code that reaches all runtimes alike looks the same, so it is called only where the machine is known to
have stood still: by its yardsticks, which are measured at the start of a run, and by lengths that agree with each other
about the change, since a spell would come and go between them.

All numbers are natural logarithms of times or of ratios of times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist, fmean, median

from ...bench.plausible import FLOAT, gflops
from ...bench.records import Case, Run

STILL = 0.01  # of a yardstick: it has not moved
STEADY = 0.03  # standard deviation over lengths that processes of the same code leave
_NORMAL_MEDIAN = NormalDist().inv_cdf(0.75)


def shares(base: Run, head: Run, moved: Mapping[Case, float]) -> dict[Case, float]:
    """The machine's part in the change of each case; 0 where nothing speaks for one."""
    points: dict[Case, list[float]] = {}
    for case, change in moved.items():
        points.setdefault(point(case), []).append(change)
    several = {key: found for key, found in points.items() if len(found) > 1}
    if _still(controls(base, head), [fmean(found) for found in several.values()]):
        return dict.fromkeys(moved, 0.0)
    least = {key: min(found, key=abs) for key, found in several.items() if _alike(found)}
    return {case: least.get(point(case), 0.0) for case in moved}


def point(case: Case) -> Case:
    """What the runtimes of a length have in common."""
    return replace(case, runtime="")


def controls(base: Run, head: Run) -> tuple[float, ...]:
    """The changes of the yardstick's time, one for each runtime that both runs have measured it on."""
    before, after = _rates(base), _rates(head)
    return tuple(math.log(before[name] / after[name]) for name in before if name in after)


def _still(yardsticks: Sequence[float], means: Sequence[float]) -> bool:
    if not yardsticks or not means or max(map(abs, yardsticks)) >= STILL:
        return False
    middle = median(means)
    return median(abs(mean - middle) for mean in means) / _NORMAL_MEDIAN < STEADY


def _alike(moved: Sequence[float]) -> bool:
    return min(moved) > 0 or max(moved) < 0


def _rates(run: Run) -> Mapping[str, float]:
    environment = run.header.get("environment")
    rates = gflops(environment, FLOAT) if isinstance(environment, Mapping) else {}
    return {name: rate for name, rate in rates.items() if 0 < rate < math.inf}
