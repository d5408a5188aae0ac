"""Which measurements of two runs belong together, and what became of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...bench import interchange
from ...bench.records import Case, Measurement, Run
from ...bench.runfolder import read_run
from ..series import objection, untimed

Word = Literal["newly failed", "newly wrong", "newly skipped", "works now", "still without a time", "new", "vanished"]
BROKEN: tuple[Word, ...] = ("newly failed", "newly wrong")  # what ran and does not run any more


@dataclass(frozen=True)
class Pair:
    """One case that shows a time in both runs; `together` where their blocks alternated, so that they pair in time."""

    base: Measurement
    head: Measurement
    together: bool = False

    @property
    def ratios(self) -> list[float]:
        """Head over base, round by round; of runs that alternated."""
        return [new / old for new, old in zip(self.head.block_medians_ns, self.base.block_medians_ns, strict=False)]


@dataclass(frozen=True)
class Fate:
    """What became of a case without a pair of times, and why."""

    case: Case
    word: Word
    reason: str


@dataclass(frozen=True)
class Matched:
    """Two runs case by case."""

    pairs: tuple[Pair, ...]
    fates: tuple[Fate, ...]


def read(path: Path) -> Run:
    """A run folder, or a file of pytest-benchmark.

    Raises:
        RunError: neither of the two, or one that cannot be read; the message names it and the reason.
    """
    return interchange.read(path) if path.suffix == ".json" or path.is_file() else read_run(path)


def cases(run: Run) -> dict[Case, Measurement]:
    """The measurements of a run by identity; a case that was measured twice counts by its last record."""
    return {m.case: m for m in run.measurements}


def match(base: Run, head: Run, *, together: bool = False) -> Matched:
    """Pair the cases of two runs by identity; `together` says that the runs alternated."""
    before, after = cases(base), cases(head)
    pairs, fates = [], []
    for case in dict.fromkeys((*before, *after)):
        reasons = untold(base, before.get(case)), untold(head, after.get(case))
        if case in before and case in after and reasons == (None, None):
            pairs.append(Pair(before[case], after[case], together))
        else:
            fates.append(_fate(case, before, after, reasons))
    return Matched(tuple(pairs), tuple(fates))


def untold(run: Run, m: Measurement | None) -> str | None:
    """Why a measurement shows no time, or None; outputs that nobody checks, as in pytest-benchmark, are no reason."""
    if m is None:
        return "not in this run"
    if m.status == "ok" and not m.block_medians_ns:
        return "no samples"
    unchecked = run.header.get("format") == interchange.FORMAT and m.status == "ok"
    return None if unchecked else untimed(m)


def _fate(
    case: Case, before: Mapping[Case, Measurement], after: Mapping[Case, Measurement], reasons: tuple[str | None, ...]
) -> Fate:
    old, new = reasons
    if case not in before:
        return Fate(case, "new", new or "")
    if case not in after:
        return Fate(case, "vanished", old or "")
    if old is not None:
        return Fate(case, "works now" if new is None else "still without a time", new or old)
    m = after[case]
    word: Word = "newly skipped" if m.status == "skipped" else "newly failed"
    return Fate(case, "newly wrong" if m.status == "ok" and objection(m) else word, new or "")
