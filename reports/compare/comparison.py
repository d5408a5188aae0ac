"""Runs compared once; every format only renders this."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...bench.records import Run
from .beside import VERSIONS, split
from .change import Change, Word, changes, sure
from .environment import CompareError, Difference, check, differences
from .match import BROKEN, Fate, match
from .noise import Noise
from .overall import Overall, overall
from .parity import Answer, ErrorChange, answers, errors
from .trend import Trend, trends


@dataclass(frozen=True)
class Comparison:
    """What the last of some runs changed against the first, and the trend over all of them.

    `limit` is the slow-down that is still accepted: 0.05 is 5 %. The blocks of runs that were measured `together`
    alternated.
    """

    runs: tuple[Run, ...]
    limit: float
    changes: tuple[Change, ...]
    noise: Noise
    overall: tuple[Overall, ...]
    fates: tuple[Fate, ...]
    answers: tuple[Answer, ...]
    errors: tuple[ErrorChange, ...]
    differences: tuple[Difference, ...]
    trends: tuple[Trend, ...]
    together: bool

    @property
    def base(self) -> Run:
        """The run that the others are held against."""
        return self.runs[0]

    @property
    def head(self) -> Run:
        """The run in question."""
        return self.runs[-1]

    @property
    def slower(self) -> tuple[Change, ...]:
        """Cases that are for sure slower by more than the limit."""
        return sure(self.changes, self.noise, self.limit)

    @property
    def slower_overall(self) -> tuple[Overall, ...]:
        """Runtimes that are, over all their cases."""
        return tuple(o for o in self.overall if o.word == "slower" and o.interval.low > 1 + self.limit)

    @property
    def broken(self) -> tuple[Fate | Answer, ...]:
        """What ran and fails now, was right and is wrong now, passed and does not pass now."""
        return (*(f for f in self.fates if f.word in BROKEN), *(a for a in self.answers if a.broken))

    @property
    def regressed(self) -> bool:
        """Whether anything is for sure worse than accepted."""
        return bool(self.slower or self.slower_overall or self.broken)

    def called(self, word: Word) -> tuple[Change, ...]:
        """The cases with this word, the largest change first."""
        found = [change for change in self.changes if change.word == word]
        return tuple(sorted(found, key=lambda change: -abs(change.deviation.value)))


def compare(runs: Sequence[Run], *, limit: float = 0.0, allowed: Collection[str] = ()) -> Comparison:
    """Hold the last run against the first, and follow each case through all of them in the order given.

    One run is held against the environment that it was measured beside (`isorun bench --base`).

    `allowed` names facts of the environment that may differ although they change times.

    Raises:
        CompareError: a single run without a base, another environment, or no case in common.
    """
    together = len(runs) == 1
    if together:
        runs, allowed = split(*runs), (*allowed, VERSIONS)
    base, head = runs[0], runs[-1]
    different = differences(runs, allowed)
    check(different, allowed)
    matched = match(base, head, together=together)
    if not {m.case for m in base.measurements} & {m.case for m in head.measurements}:
        raise CompareError(f"{base.folder} and {head.folder} have no case in common, so there is nothing to compare")
    found, noise = changes(base, head, matched.pairs)
    return Comparison(
        runs=tuple(runs),
        limit=limit,
        changes=found,
        noise=noise,
        overall=overall(found, noise),
        fates=matched.fates,
        answers=answers(base, head),
        errors=errors(matched.pairs),
        differences=different,
        trends=trends(runs) if len(runs) > 2 else (),
        together=together,
    )
