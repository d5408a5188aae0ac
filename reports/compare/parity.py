"""What changed about right and wrong: the answers to checks, and the errors of the timed outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...bench.records import Case, Run, Verdict
from ..series import distance, worst
from .match import Pair

NOTABLE = 1.1  # the same code on the same machine makes the same errors; summing in another order changes them by less


@dataclass(frozen=True)
class Answer:
    """A check of one exported model in both runs; None where a run did not ask."""

    base: Verdict | None
    head: Verdict | None

    @property
    def broken(self) -> bool:
        """Whether it passed before and does not any more."""
        return bool(self.base and self.head and self.base.status == "pass" != self.head.status)

    @property
    def known(self) -> Verdict:
        """The later of the two."""
        verdict = self.head or self.base
        if verdict is None:
            raise ValueError("an answer of neither run")
        return verdict


@dataclass(frozen=True)
class ErrorChange:
    """The worst error of a case against float64, in units of torch's own rounding, before and after."""

    case: Case
    base: float
    head: float


def answers(base: Run, head: Run) -> tuple[Answer, ...]:
    """The checks whose status is not the same in both runs."""
    before, after = ({_key(verdict): verdict for verdict in run.verdicts} for run in (base, head))
    pairs = [Answer(before.get(key), after.get(key)) for key in dict.fromkeys((*before, *after))]
    return tuple(pair for pair in pairs if _status(pair.base) != _status(pair.head))


def errors(pairs: Sequence[Pair]) -> tuple[ErrorChange, ...]:
    """The cases whose worst error grew or shrank by more than a tenth; the largest growth comes first."""
    found = []
    for pair in pairs:
        before, after = worst(pair.base), worst(pair.head)
        if before and after and _notable(distance(before), distance(after)):
            found.append(ErrorChange(pair.head.case, distance(before), distance(after)))
    return tuple(sorted(found, key=lambda change: -_growth(change.base, change.head)))


def _notable(before: float, after: float) -> bool:
    growth = _growth(before, after)
    return growth > NOTABLE or growth < 1 / NOTABLE


def _growth(before: float, after: float) -> float:
    if before == after:
        return 1.0
    return after / before if before else math.inf


def _key(verdict: Verdict) -> tuple[str, ...]:
    return verdict.model, verdict.size, verdict.phase, verdict.dtype, verdict.check


def _status(verdict: Verdict | None) -> str | None:
    return verdict.status if verdict else None
