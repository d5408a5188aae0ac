"""The change of each case between two runs: a ratio of times with an interval, two tests, and one of four words.

A case is called slower or faster when both of these reject that nothing changed:

- the Mann-Whitney rank test on the block medians of the two runs (1947, Annals of Mathematical Statistics 18:50), which
  assumes nothing about the noise within them; where their blocks alternated, Wilcoxon's signed-rank test on their
  ratios (1945, Biometrics Bulletin 1:80);
- what the machine's part (see machine.py) leaves of the ratio of the medians, against its whole standard error, which
  is the noise within the runs and between them (see noise.py).

Each is corrected over all cases by Benjamini and Hochberg (1995, JRSS B 57:289). When nothing changed at all, as in a
commit that touches no code, this keeps the chance of any false call at 5 %, just as Holm's correction would; when much
changed, a few per cent of the calls may be false, and in exchange a suite of a hundred cases still sees small changes.
A rank test cannot say more than that all blocks of one run lie below all of the other. With five blocks a run that is
p = 0.008, too much for any correction over many cases; such a complete separation counts as rejecting if its own p is
below 5 %, or that of five pairs, and the corrected second test decides.

Share of 300 simulated pairs of runs of the same code in which any of 84 cases was called (5-9 blocks, 1, 5 or 15 %
noise within runs, 0-5 % between them): 0.000; any of 12 cases: 0.000-0.063. Of 42 cases 5 % slower, at 0.5, 1 and 2 %
between runs: 0.96, 0.35 and 0.00 called where yardsticks say that the machine stood still, and 0.78, 0.05 and 0.00
without any. What a single case cannot show, its runtime as a whole does; see overall.py.

Six real runs of 70 cases on two shared cores, where the same case took up to 1.9 times as long in another run: in none
of the 30 ordered pairs was anything called, nor with one runtime 5 % slower: that takes `isorun bench --base`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from scipy.stats import false_discovery_control, mannwhitneyu, wilcoxon
from scipy.stats import t as student

from ...bench.records import Case, Run
from ...bench.timing import Interval
from .deviations import contrasts, deviation
from .machine import parted
from .match import Pair
from .noise import Deviation, Noise, estimate, left, p_value, ratio_interval, whole

Word = Literal["faster", "slower", "same", "cannot tell"]
LEVEL = 0.05
_FIVE = 2 * 0.5**5  # p of five pairs that all lie on one side, the fewest that a run measures
WITHIN = 0.05  # the relative difference that still counts as the same


@dataclass(frozen=True)
class Change:
    """One case in two runs: `ratio` is head time / base time, so 1.05 is 5 % slower, with a 95 % interval.

    `rank_p` and `p` are the two tests' p-values after correction over all cases. `deviation` is the logarithm of the
    ratio, with the noise within the runs and the machine's part.
    """

    case: Case
    base_ns: float
    head_ns: float
    ratio: float
    interval: Interval
    rank_p: float
    p: float
    word: Word
    deviation: Deviation


def changes(base: Run, head: Run, pairs: Sequence[Pair]) -> tuple[tuple[Change, ...], Noise]:
    """What changed in each pair, and the noise that it was held against."""
    raw = [deviation(pair) for pair in pairs]
    noise = estimate(contrasts(pairs, raw))
    if not pairs:
        return (), noise
    if not pairs[0].together:
        raw = parted(base, head, [pair.base.case for pair in pairs], raw, noise)
    ranks = [_rank(pair) for pair in pairs]
    tests = [p_value(left(whole(one, noise)), noise.single) for one in raw]
    corrected = zip(false_discovery_control(ranks), false_discovery_control(tests), strict=True)
    parts = zip(pairs, raw, ranks, corrected, strict=True)
    return tuple(_change(pair, one, rank, both, noise) for pair, one, rank, both in parts), noise


def sure(found: Sequence[Change], noise: Noise, limit: float) -> tuple[Change, ...]:
    """Those that are called slower, and for sure by more than `limit` (0.05 is 5 %), corrected over all cases."""
    if not found:
        return ()
    rest = [left(whole(change.deviation, noise)) for change in found]
    excess = [(deviation.value - math.log1p(limit)) / deviation.error for deviation in rest]
    tests = false_discovery_control([min(1.0, 2 * float(student.sf(value, noise.single))) for value in excess])
    return tuple(
        change
        for change, p in zip(found, tests, strict=True)
        if change.word == "slower" and change.interval.low > 1 + limit and p < LEVEL
    )


def _rank(pair: Pair) -> float:
    """The two-sided p-value of the rank test; exact where no two blocks are equal."""
    if not pair.together:
        return float(mannwhitneyu(pair.base.block_medians_ns, pair.head.block_medians_ns).pvalue)
    apart = [math.log(ratio) for ratio in pair.ratios if ratio != 1]
    return float(wilcoxon(apart).pvalue) if apart else 1.0


def _separate(pair: Pair, rank: float) -> bool:
    """Whether all blocks say the same, and are enough to say something."""
    if pair.together:
        return rank <= _FIVE and (min(pair.ratios) > 1 or max(pair.ratios) < 1)
    before, after = pair.base.block_medians_ns, pair.head.block_medians_ns
    return rank < LEVEL and (max(before) < min(after) or max(after) < min(before))


def _change(pair: Pair, raw: Deviation, rank: float, corrected: tuple[float, float], noise: Noise) -> Change:
    rank_p, p = map(float, corrected)
    interval = ratio_interval(whole(raw, noise), noise.single)
    ranked = rank_p < LEVEL or _separate(pair, rank)
    return Change(
        case=pair.base.case,
        base_ns=median(pair.base.block_medians_ns),
        head_ns=median(pair.head.block_medians_ns),
        ratio=math.exp(raw.value),
        interval=interval,
        rank_p=rank_p,
        p=p,
        word=word(interval, ranked and p < LEVEL),
        deviation=raw,
    )


def word(interval: Interval, changed: bool) -> Word:
    """One of four words: what is called changed lies wholly on one side of 1."""
    if changed and not interval.low <= 1 <= interval.high:
        return "slower" if interval.low > 1 else "faster"
    return "same" if interval.low >= 1 - WITHIN and interval.high <= 1 + WITHIN else "cannot tell"
