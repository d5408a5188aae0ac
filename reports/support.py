"""The matrix of support: architecture × feature × runtime, yes or no with the reason, from the records of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..bench.records import Measurement, Run, Verdict
from .document import Cell, Document, Section, Table
from .exports import graphs, whole
from .format import listing, moment, plain
from .series import DRIFT, SAME_FUNCTION, untimed

DTYPES = ("fp16", "bf16", "int8", "int8-weights", "int4")
_UNTRIED = Cell("–", tone="muted")


@dataclass(frozen=True)
class _Line:
    """Everything that the runs say about one model on one runtime."""

    model: str
    runtime: str
    measured: tuple[Measurement, ...]
    verdicts: tuple[Verdict, ...]
    opsets: tuple[int, ...]


Feature = Callable[[_Line], Cell]


def matrix(runs: Sequence[Run]) -> Document:
    """A table a runtime; a runtime that nothing ran on has the reason in its place."""
    lines = _lines(runs)
    names = dict.fromkeys(line.runtime for line in lines)
    sections = tuple(_section(name, [line for line in lines if line.runtime == name]) for name in names)
    made = [f"{plain(run.header.get('name'))}, {moment(plain(run.header.get('created')))}" for run in runs]
    lead = (
        f"Generated from {listing(made)}{_versions(runs)}. Yes: it was run, and every output was as near to float64 as "
        "its precision allows. No: the note has the reason. –: it was not tried.",
    )
    return Document("What is supported where", lead, sections)


def _versions(runs: Sequence[Run]) -> str:
    """What the runs ran on: the version of each package, or all that it had in them."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        versions = run.environment.get("versions")
        for name, version in versions.items() if isinstance(versions, Mapping) else ():
            found.setdefault(plain(name), {})[plain(version)] = None
    said = [f"{name} {' or '.join(known)}" for name, known in found.items()]
    return f", with {listing(said)}" if said else ""


def _lines(runs: Sequence[Run]) -> list[_Line]:
    measured: dict[tuple[str, str], dict[object, Measurement]] = {}
    for m in (m for run in runs for m in run.measurements):
        measured.setdefault((m.case.runtime, m.case.model), {})[m.case] = m
    verdicts = [verdict for run in runs for verdict in run.verdicts]
    opsets = {(str(item.get("model")), whole(item.get("opset"))) for run in runs for item in graphs(run)}
    return [
        _Line(
            model=model,
            runtime=runtime,
            measured=tuple(found.values()),
            verdicts=tuple(verdict for verdict in verdicts if verdict.model == model),
            opsets=tuple(sorted(opset for name, opset in opsets if name == model and opset)),
        )
        for (runtime, model), found in sorted(measured.items())
    ]


def _section(runtime: str, lines: Sequence[_Line]) -> Section:
    key = f"runtime-{runtime}"
    absent = {m.reason for line in lines for m in line.measured if m.status == "skipped"}
    if all(m.status == "skipped" for line in lines for m in line.measured):
        return Section(key, runtime, (f"Not run: {'; '.join(sorted(filter(None, absent)))}.",))
    cells = {name: [feature(line) for line in lines] for name, feature in FEATURES.items()}
    asked = {name: column for name, column in cells.items() if any(cell != _UNTRIED for cell in column)}
    rows = tuple(zip((Cell(line.model) for line in lines), *asked.values(), strict=True))
    said = tuple(f"Not tried, {dtype}: {reason}." for dtype in DTYPES for reason in _left_out(lines, dtype))
    return Section(key, runtime, said, (Table(f"Supported on {runtime}", ("model", *asked), rows, open=True),))


def _left_out(lines: Sequence[_Line], dtype: str) -> list[str]:
    """Why a runtime runs nothing in a precision; nothing to say where it ran or failed anything."""
    found = [m for line in lines for m in line.measured if m.case.dtype == dtype]
    left = all(m.status == "skipped" for m in found)
    return sorted({m.reason for m in found if m.reason}) if left else []


def _tried(measured: Iterable[Measurement]) -> Cell:
    """Yes when all went well, no with the first reason otherwise; what a model cannot have by itself is no fault."""
    tried = [m for m in measured if m.status != "skipped"]
    reasons = [reason for m in tried if (reason := untimed(m))]
    if not tried:
        return _UNTRIED
    return Cell("no", tone="bad", note=reasons[0]) if reasons else Cell("yes", tone="good")


def _phase(phase: str) -> Feature:
    return lambda line: _tried(m for m in line.measured if m.case.phase == phase and m.case.dtype == "fp32")


def _dtype(dtype: str) -> Feature:
    return lambda line: _tried(m for m in line.measured if m.case.dtype == dtype)


def _free(axis: str, phase: str | None = None) -> Feature:
    """An axis is free when one graph ran at two sizes of it at least; of those that failed, the reason."""

    def ask(line: _Line) -> Cell:
        of = [m for m in line.measured if m.case.dtype == "fp32" and phase in (None, m.case.phase)]
        tried = [m for m in of if m.status != "skipped"]
        sizes = sorted({getattr(m.case, axis) for m in tried if not untimed(m)})
        failed = [reason for m in tried if getattr(m.case, axis) not in sizes and (reason := untimed(m))]
        if failed and sizes:
            return Cell("no", tone="bad", note=failed[0])
        return Cell("yes", tone="good") if len(sizes) > 1 else _UNTRIED

    return ask


def _empty(line: _Line) -> Cell:
    return _tried(m for m in line.measured if (m.case.phase, m.case.past, m.case.dtype) == ("step", 0, "fp32"))


def _padded(line: _Line) -> Cell:
    """Of the graph alone: it is compared with its source on a padded batch."""
    asked = [v for v in line.verdicts if v.check in (SAME_FUNCTION, DRIFT) and "padding" in v.detail]
    bad = [v.detail for v in asked if v.status != "pass"]
    if not asked:
        return _UNTRIED
    return Cell("no", tone="bad", note=bad[0]) if bad else Cell("yes", tone="good")


def _opset(line: _Line) -> Cell:
    return Cell(", ".join(map(str, line.opsets))) if line.opsets else _UNTRIED


FEATURES: dict[str, Feature] = {
    "forward": _phase("forward"),
    "encode": _phase("encode"),
    "decode step": _phase("step"),
    "free sequence": _free("seq", "forward"),
    "free past": _free("past", "step"),
    "free batch": _free("batch"),
    "empty past": _empty,
    "padding": _padded,
    **{dtype: _dtype(dtype) for dtype in DTYPES},
    "opset": _opset,
}
