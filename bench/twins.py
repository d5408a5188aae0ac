"""How far two processes of the same runtime lie apart, which no number of their blocks can show.

Where memory came to lie stays the same for the whole life of a process and changes with the next one, and times change
with it (Mytkowicz et al. 2009, "Producing wrong data without doing anything obviously wrong!"). So one runtime of a run
is loaded twice for every model, its control: both of these *twins* run the same code on the same inputs in the same
rounds of blocks, and what lies between them beyond the noise of their blocks is what lies between any two processes. It
is taken for that of every runtime of the run.

Its standard deviation is that at which the squares of all differences, each over its whole variance, come to what they
should: the estimate of Paule and Mandel (1982, Journal of Research of the NBS 87:377) of a variance between
laboratories, with the mean known to be 0. Beside it:

- the lengths of one model share their two processes, so they count together as one observation;
- a square counts for at most `CAP`, and what that takes from normal noise is put back: an interrupted case is no blow;
- few models say little: `USUAL` counts as if it had been seen on `PRIOR` models more, and Student's t holds the rest.

In simulated runs of 1 to 40 models at 1 to 4 lengths, whose processes differed by 0, 1, 2 and 5 %, for all lengths
alike or for each of them anew, equal pairs were called different in 0.0-5.0 %. With t alone, without a prior, one model
gave half-widths of 8 to 60 %; with a prior of 1 %, worth four models, up to 31 % were called different.

All differences are natural logarithms of ratios of times, so 0.01 is one per cent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, median

from scipy.optimize import brentq
from scipy.special import chdtr, chdtrc, stdtrit

from .records import Measurement
from .timing import LEVEL, log_error

LIGHT = ("ort-cpu", "ort-cuda", "openvino", "torch", "torch-cuda")  # compile nothing for a shape, the quickest first
USUAL, PRIOR = 0.02, 1  # what two processes differ by before one has looked, and how many models that is worth
CAP = 4.0  # the most that a single squared difference counts, in its own variance
EFFICIENCY = 0.8  # degrees of freedom a model: 0.88 by theory, for the cap; the rest is for what the prior takes
FEWEST = 3  # pairs of blocks from which a case says something
_MEAN = float(chdtr(3, CAP) + CAP * chdtrc(1, CAP))  # of a squared standard normal number that counts for CAP at most


@dataclass(frozen=True)
class Twin:
    """One case of the control: ln(ratio of the two processes' times), and the standard error that its blocks give it.

    Cases of the same `model`, phase, precision and batch share their processes.
    """

    model: tuple[str, ...]
    runtime: str
    value: float
    error: float


@dataclass(frozen=True)
class Spread:
    """What lies between two processes of a runtime beyond the noise of their blocks.

    `deviation` is the standard deviation of the logarithm of a ratio, known with `freedom` degrees of freedom, from
    `cases` of `runtimes`, of which half differed by less than `typical`.
    """

    deviation: float
    freedom: float
    typical: float
    cases: int
    runtimes: tuple[str, ...]

    @property
    def apart(self) -> float:
        """The logarithm of the ratio that 95 % of pairs of processes stay below."""
        return float(stdtrit(self.freedom, (1 + LEVEL) / 2)) * self.deviation


def control(runtimes: Sequence[str]) -> str | None:
    """The runtime whose process gets a twin: the one that is the quickest to load; None where nothing is compared."""
    if len(runtimes) < 2:
        return None
    return next((name for name in LIGHT if name in runtimes), runtimes[-1])


def spread(measurements: Iterable[Measurement]) -> Spread | None:
    """What the control of a run says; None where none was timed."""
    return estimate(tuple(twin for m in measurements if (twin := _twin(m))))


@lru_cache  # a report asks again for every view
def estimate(twins: tuple[Twin, ...]) -> Spread | None:
    """The same from its cases."""
    if not twins:
        return None
    models: dict[tuple[str, ...], list[Twin]] = defaultdict(list)
    for twin in twins:
        models[twin.model].append(twin)

    def surplus(deviation: float) -> float:
        seen = sum(fmean(_square(twin, deviation) for twin in shared) - _MEAN for shared in models.values())
        return seen + PRIOR * ((USUAL / deviation) ** 2 - 1)

    least = USUAL / math.sqrt(1 + _MEAN * len(models) / PRIOR)  # if all were equal
    most = max(USUAL, *(abs(twin.value) / math.sqrt(_MEAN) for twin in twins))  # no square is above its mean
    return Spread(
        deviation=float(brentq(surplus, 0.99 * least, 1.01 * most, rtol=1e-3)),
        freedom=EFFICIENCY * len(models) + PRIOR,
        typical=median(abs(twin.value) for twin in twins),
        cases=len(twins),
        runtimes=tuple(dict.fromkeys(twin.runtime for twin in twins)),
    )


def _square(twin: Twin, deviation: float) -> float:
    return min(CAP, twin.value**2 / (deviation**2 + twin.error**2))


def _twin(m: Measurement) -> Twin | None:
    pairs = list(zip(m.block_medians_ns, m.twin_medians_ns, strict=False))
    if m.status != "ok" or len(pairs) < FEWEST or min(map(min, pairs)) <= 0:
        return None
    ratios = [own / other for own, other in pairs]
    case = m.case
    model = (case.model, case.size, case.phase, case.dtype, str(case.batch))
    return Twin(model, case.runtime, median(map(math.log, ratios)), log_error(ratios))
