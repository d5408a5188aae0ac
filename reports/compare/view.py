"""What a comparison says: sections of sentences, tables and a chart, for every format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...bench.records import Case
from ..document import Cell, Document, Section, Table
from ..format import duration, moment, number, plain
from .change import Change, Word
from .chart import ratios
from .comparison import Comparison
from .parity import Answer
from .trend import Trend
from .words import TONES, change, names, sentences, signed, titled, worded

_NONE = Cell("–", tone="muted")
IDENTITY = ("model", "phase", "runtime", "new tokens", "past")
_READING = (
    "Change: time of the head over time of the base. The 95 % intervals hold the noise within both runs and the "
    "noise between them, which is estimated from the scatter over all cases of a runtime. A case is called slower or "
    "faster when this interval and the rank test on its blocks both say so; both p are corrected for the number of "
    "cases. A runtime as a whole is the mean over its models, those whose change is known well counting for more.",
)

_PAIRED = (
    "Here a change is the median over rounds of the ratio of two blocks that followed each other, which the medians of "
    "base and head beside it need not show."
)


def document(comparison: Comparison, *, charts: bool = True) -> Document:
    """The whole comparison; without `charts` also without what only a page has room for."""
    made = (
        _summary(comparison, charts),
        _cases(comparison, charts),
        _trends(comparison.trends, comparison),
        _parity(comparison),
        _fates(comparison),
        _runs(comparison, charts),
    )
    sections = tuple(section for section in made if section is not None)
    called = names(comparison.runs)
    return Document(f"isorun compare: {called[0]} → {called[-1]}", (), sections)


def changed(comparison: Comparison) -> Table:
    """The cases that are called slower or faster."""
    return _changes("Cases that changed", (*comparison.called("slower"), *comparison.called("faster")))


def runtimes(comparison: Comparison) -> Table:
    """Each runtime over all its cases."""
    columns = ("runtime", "change over all cases", "verdict", "slower", "faster", "same", "cannot tell")
    rows = (
        (
            Cell(overall.runtime or "all"),
            Cell(change(overall), overall.ratio),
            Cell(worded(overall.word), tone=TONES[overall.word]),
            *(_count(overall.count(word)) for word in ("slower", "faster", "same", "cannot tell")),
        )
        for overall in comparison.overall
    )
    return Table("Each runtime over all its cases", columns, tuple(rows))


def _summary(comparison: Comparison, charts: bool) -> Section:
    tables = [table for table in (runtimes(comparison), changed(comparison)) if table.rows]
    drawn = [ratios(comparison)] if charts and comparison.changes else []
    notes = (*_READING, *((_PAIRED,) if comparison.together else ())) if tables else ()
    return Section("summary", "Summary", sentences(comparison), (*tables, *drawn), notes)


def _cases(comparison: Comparison, charts: bool) -> Section | None:
    words: tuple[Word, ...] = ("slower", "faster", "cannot tell", "same")
    table = _changes("Every case", [c for word in words for c in comparison.called(word)], details=not charts)
    return Section("cases", "Every case", (), (table,)) if table.rows else None


def _changes(caption: str, found: Iterable[Change], *, details: bool = False) -> Table:
    columns = (*IDENTITY, "base", "head", "change", "verdict", "p, ranks", "p, ratio")
    return Table(caption, columns, tuple(_row(c) for c in found), details=details)


def _identity(case: Case) -> tuple[Cell, ...]:
    """The cells under `IDENTITY`."""
    model, phase = titled(case)
    return (
        Cell(model),
        Cell(phase) if phase else _NONE,
        Cell(case.runtime) if case.runtime else _NONE,
        Cell(str(case.seq), case.seq) if case.seq else _NONE,
        Cell(str(case.past), case.past),
    )


def _row(found: Change) -> tuple[Cell, ...]:
    return (
        *_identity(found.case),
        Cell(duration(found.base_ns), found.base_ns),
        Cell(duration(found.head_ns), found.head_ns),
        Cell(change(found), found.ratio),
        Cell(worded(found.word), tone=TONES[found.word]),
        Cell(number(found.rank_p, 2), found.rank_p),
        Cell(number(found.p, 2), found.p),
    )


def _count(count: int) -> Cell:
    return Cell(str(count), count)


def _trends(found: Sequence[Trend], comparison: Comparison) -> Section | None:
    if not found:
        return None
    columns = (*IDENTITY, *names(comparison.runs), "steps")
    rows = tuple(_trend(trend, comparison) for trend in sorted(found, key=lambda trend: not trend.steps))
    stepped = sum(bool(trend.steps) for trend in found)
    lead = f"{stepped} of {len(found)} cases have a step, in the order in which the runs were given."
    note = "A step at the same run in every case may be the machine as well as the code."
    return Section("trends", "Trends", (lead,), (Table("Median time of a call, run by run", columns, rows),), (note,))


def _trend(trend: Trend, comparison: Comparison) -> tuple[Cell, ...]:
    called = names(comparison.runs)
    steps = ", ".join(f"{signed(step.ratio - 1)} % from {called[step.at]} on" for step in trend.steps)
    up = any(step.ratio > 1 for step in trend.steps)
    return (
        *_identity(trend.case),
        *(Cell(duration(ns), ns) if ns else _NONE for ns in trend.medians_ns),
        Cell(steps, tone="bad" if up else "good") if steps else Cell("no step", tone="muted"),
    )


def _parity(comparison: Comparison) -> Section | None:
    checks = tuple(_answer(answer) for answer in comparison.answers)
    errors = tuple(
        (*map(Cell, titled(e.case)), Cell(e.case.runtime), Cell(str(e.case.length), e.case.length),
         Cell(number(e.base), e.base), Cell(number(e.head), e.head))
        for e in comparison.errors
    )  # fmt: skip
    tables = (
        Table("Checks with another answer", ("model", "phase", "check", "base", "head", "detail"), checks),
        Table(
            "Errors against float64 that changed by more than a tenth, in units of torch's own rounding",
            ("model", "phase", "runtime", "n", "base", "head"),
            errors,
        ),
    )
    shown = tuple(table for table in tables if table.rows)
    return Section("parity", "Parity", (), shown) if shown else None


def _answer(answer: Answer) -> tuple[Cell, ...]:
    known = answer.known
    base, head = (
        Cell(verdict.status) if verdict else Cell("not asked", tone="muted") for verdict in (answer.base, answer.head)
    )
    tone = Cell(head.text, tone="bad") if answer.broken else head
    return Cell(f"{known.model} @ {known.size}"), Cell(known.phase), Cell(known.check), base, tone, Cell(known.detail)


def _fates(comparison: Comparison) -> Section | None:
    """Cases that differ in n alone share a row."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for fate in comparison.fates:
        key = (fate.word, *titled(fate.case), fate.case.runtime, fate.reason)
        alike.setdefault(key, []).append(fate.case.length)
    columns = ("what", "model", "phase", "runtime", "n", "reason")
    rows = tuple(
        (Cell(what, tone="bad" if what in ("newly failed", "newly wrong") else "plain"), Cell(model), Cell(phase),
         Cell(runtime), Cell(", ".join(map(str, sorted(lengths)))), Cell(reason))
        for (what, model, phase, runtime, reason), lengths in sorted(alike.items())
    )  # fmt: skip
    table = Table("Cases without a time in both runs", columns, rows)
    return Section("rest", "Not compared", (), (table,)) if rows else None


def _runs(comparison: Comparison, charts: bool) -> Section:
    called = names(comparison.runs)
    known = ("isorun", "created", "finished")
    facts = tuple((Cell(key), *(_fact(key, run.header.get(key)) for run in comparison.runs)) for key in known)
    cases = (Cell("measurements"), *(_count(len(run.measurements)) for run in comparison.runs))
    different = tuple(
        (Cell(d.key), *(Cell(value) if value else _NONE for value in d.values), Cell(d.effect))
        for d in comparison.differences
    )
    tables = (
        Table("The runs", ("what", *called), (*facts, cases), details=not charts),
        Table("Facts of the environment that differ", ("fact", *called, "effect on the comparison"), different),
        Table("Records that could not be read", ("run", "problem"), tuple(_problems(comparison))),
    )
    lead = "" if different else "Both were made in the same environment, as far as it was recorded."
    return Section("runs", "Runs", (lead,) if lead else (), tuple(table for table in tables if table.rows))


def _fact(key: str, value: object) -> Cell:
    text = moment(plain(value)) if key in ("created", "finished") and value else plain(value)
    return Cell(text) if text else _NONE


def _problems(comparison: Comparison) -> Iterator[tuple[Cell, ...]]:
    for name, run in zip(names(comparison.runs), comparison.runs, strict=True):
        yield from ((Cell(name), Cell(problem, tone="bad")) for problem in run.problems)
