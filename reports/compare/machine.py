"""What the machine did between two runs: the part of a change that may not be the code's.

The runtimes of a length alternate in time, block by block, so a neighbour's work or a lower clock slows all of them,
and the next length none: on a shared machine such a spell may double all times of a length. So what all runtimes of a
length share, which is the least change that each of them shows, is held to be the machine's. How surely, two things
say. A spell reaches one runtime further than another (`UNEVEN`; torch moved 1.2 to 1.9 times as far as ONNX Runtime on
two shared cores). And what was changed may hide it: a runtime that became slower in a spell of less work shows no
change, and the others seem faster. So the scatter over lengths of what their runtimes did in the mean, beyond that of
processes of the same code, is an error of every change. A runtime alone shares nothing, and blocks of both runs that
alternated with each other saw the same machine.

A change of the code that reaches all runtimes alike looks the same, so it is called only where the machine is known to
have stood still: by its yardsticks, which are measured at the start of a run, and by lengths that agree with each other
about the change, since a spell would come and go between them.

All numbers are natural logarithms of times or of ratios of times.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from ...bench.plausible import FLOAT, gflops
from ...bench.records import Case, Run
from .noise import NORMAL_MEDIAN, Deviation, Noise, whole

UNEVEN = 0.5  # standard deviation of how much further the machine moves one runtime than another
STILL = 0.01  # of a yardstick: it has not moved
ENOUGH = 4  # lengths that can agree with each other
STEADY = 0.03  # standard deviation over lengths that processes of the same code leave


def parted(base: Run, head: Run, cases: Sequence[Case], found: Sequence[Deviation], noise: Noise) -> list[Deviation]:
    """The deviations of some cases with the machine's part in each; nothing is in it where nothing speaks for one."""
    points: dict[Case, list[Deviation]] = {}
    for case, deviation in zip(cases, found, strict=True):
        points.setdefault(case.point, []).append(whole(deviation, noise))
    several = {key: members for key, members in points.items() if len(members) > 1}
    if not several or _still(controls(base, head), several.values()):
        return list(found)
    least = {key: _least([member.value for member in members]) for key, members in several.items()}
    spells = _spells(several.values())
    return [
        replace(deviation, machine=least[key], unsure=math.hypot(UNEVEN * least[key], spells))
        if (key := case.point) in several
        else deviation
        for case, deviation in zip(cases, found, strict=True)
    ]


def controls(base: Run, head: Run) -> tuple[float, ...]:
    """The changes of the yardstick's time, one for each runtime that both runs have measured it on."""
    before, after = _rates(base), _rates(head)
    return tuple(math.log(before[name] / after[name]) for name in before if name in after)


def _still(yardsticks: Sequence[float], points: Collection[Sequence[Deviation]]) -> bool:
    if not yardsticks or max(map(abs, yardsticks)) >= STILL:
        return False
    return len(points) >= ENOUGH and _scatter(points) < STEADY


def _least(changes: Sequence[float]) -> float:
    """What all of them show; 0 where they do not go the same way."""
    return min(changes, key=abs) if min(changes) > 0 or max(changes) < 0 else 0.0


def _spells(points: Collection[Sequence[Deviation]]) -> float:
    """How far lengths scatter, beyond what processes of the same code would."""
    usual = median(sum(member.error**2 for member in members) / len(members) ** 2 for members in points)
    return math.sqrt(max(0.0, _scatter(points) ** 2 - usual))


def _scatter(points: Iterable[Sequence[Deviation]]) -> float:
    """The standard deviation over lengths of the mean change of their runtimes, which a few far ones do not make."""
    means = [fmean(member.value for member in members) for members in points]
    middle = median(means)
    return median(abs(mean - middle) for mean in means) / NORMAL_MEDIAN


def _rates(run: Run) -> Mapping[str, float]:
    return {name: rate for name, rate in gflops(run.environment, FLOAT).items() if 0 < rate < math.inf}
