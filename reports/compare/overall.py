"""The change of each runtime as a whole: the geometric mean over its cases, which sees what no single case can.

Cases of one exported model were timed in one process and share its luck, so the exported model is the unit that is
averaged over, and not the case. A model counts by how well its change is known, and by how much models really differ in
it: alike where they differ by more than is not known (the weights of DerSimonian and Laird 1986, Controlled Clinical
Trials 7:177, with the variance between models of Paule and Mandel 1982, Journal of Research of the NBS 87:377).

Share of 300 simulated pairs of runs of the same code in which one of two runtimes was called (0-5 % noise between
runs): 0.000-0.017 with 21 models, 0.000-0.060 with 3. A runtime slowed by 5 %, at 0.5, 1, 2 and 5 % between runs: with
21 models called in 1.00, 1.00, 1.00 and 0.40, with 3 in 1.00, 1.00, 0.95 and 0.22. Without yardsticks, with 21 models:
1.00, 1.00, 0.96 and 0.35.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import false_discovery_control

from ...bench.timing import Interval
from .change import LEVEL, Change, Word, word
from .noise import Deviation, Noise, left, p_value, ratio_interval, whole


@dataclass(frozen=True)
class Overall:
    """One runtime over all its cases: `ratio` is head time / base time; `p` is corrected over the runtimes."""

    runtime: str
    cases: tuple[Change, ...]
    ratio: float
    interval: Interval
    p: float
    word: Word

    def count(self, wanted: Word) -> int:
        """How many of its cases have this word."""
        return sum(change.word == wanted for change in self.cases)


def overall(found: Sequence[Change], noise: Noise) -> tuple[Overall, ...]:
    """Every runtime that has a case, in the order of the cases."""
    names = dict.fromkeys(change.case.runtime for change in found)
    members = [tuple(change for change in found if change.case.runtime == name) for name in names]
    if not members:
        return ()
    means = [_mean(cases, noise) for cases in members]
    tests = false_discovery_control([p_value(left(mean), noise.freedom) for mean in means])
    return tuple(_overall(cases, mean, float(p), noise) for cases, mean, p in zip(members, means, tests, strict=True))


def _mean(cases: Sequence[Change], noise: Noise) -> Deviation:
    """The mean over exported models, those that are known well counting for more."""
    models: dict[tuple[object, ...], list[Deviation]] = {}
    for change in cases:
        case = change.case
        key = (case.model, case.size, case.phase, case.dtype, case.batch)
        models.setdefault(key, []).append(whole(change.deviation, noise))
    found = [_model(members) for members in models.values()]
    apart = heterogeneity([one for one in found if math.isfinite(one.error)])
    weights = [1 / (one.error**2 + apart**2) for one in found]
    errors = [
        weight * one.error for weight, one in zip(weights, found, strict=True) if weight
    ]  # 0 where nothing is known
    return _weighted(found, weights, math.hypot(*errors) / sum(weights) if errors else math.inf)


def _model(cases: Sequence[Deviation]) -> Deviation:
    """The mean over the cases of one model. They share their processes, so that their number makes it no surer."""
    weights = [1 / one.error**2 for one in cases]
    error = math.sqrt(len(cases) / sum(weights)) if sum(weights) else math.inf
    return _weighted(cases, weights, error)


def _weighted(found: Sequence[Deviation], weights: Sequence[float], error: float) -> Deviation:
    """The mean with its error. Many cases do not say better than one what the machine did: a spell may outlast them."""
    shares = np.array(weights) if sum(weights) else np.ones(len(found))
    parts = np.array([(one.value, one.machine, one.unsure) for one in found])
    value, machine, unsure = (shares / shares.sum() @ parts).tolist()
    return Deviation(value, error, machine, unsure)


def heterogeneity(found: Sequence[Deviation]) -> float:
    """The standard deviation of what really happened to models: that at which their scatter is what it should be."""

    def surplus(square: float) -> float:
        weights = [1 / (one.error**2 + square) for one in found]
        middle = sum(weight * one.value for weight, one in zip(weights, found, strict=True)) / sum(weights)
        seen = sum(weight * (one.value - middle) ** 2 for weight, one in zip(weights, found, strict=True))
        return seen - (len(found) - 1)

    if len(found) < 2 or surplus(0.0) <= 0:
        return 0.0
    most = sum((one.value - found[0].value) ** 2 for one in found)  # no weighted sum of squares is above it
    return math.sqrt(brentq(surplus, 0.0, most))


def _overall(cases: tuple[Change, ...], mean: Deviation, p: float, noise: Noise) -> Overall:
    interval = ratio_interval(mean, noise.freedom)
    return Overall(cases[0].case.runtime, cases, math.exp(mean.value), interval, p, word(interval, p < LEVEL))
