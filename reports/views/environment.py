"""Where and how the run was made: machine, runtimes, versions, suite, and what could not be read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...bench.plausible import GFLOPS, PRECISIONS
from ...bench.records import Measurement, Run
from ..document import Cell, Section, Table
from ..format import duration, elapsed, memory, moment, number, plain
from ..series import runtimes

ORDER = 90
_MATMUL = (
    "Each runtime's matmul rate was measured on this machine, because each brings its own matrix library: where the "
    "rates differ, what looks like a comparison of graphs is also a comparison of those libraries."
)
_RUN = ("name", "created", "resumed", "finished", "elapsed_s", "isorun", "schema")
_LISTED = (
    "versions",
    "matmul_gflops",
    "overhead_ns",
    "precisions",
    "runtimes_missing",
)  # shown elsewhere than among the machine's facts
_UNITS: Mapping[str, Callable[[float], str]] = {"_bytes": memory, "_s": elapsed}


def view(run: Run) -> Section | None:
    """Tables of facts; a fact that the header lacks has no row."""
    environment = run.environment
    tables = (
        _runtimes(run, environment),
        _facts("The machine", {key: value for key, value in environment.items() if key not in _LISTED}),
        _facts("Versions", _mapping(environment.get("versions")), title=str),
        _facts("The suite", _mapping(run.header.get("suite"))),
        _facts("The run", _times(run)),
        _problems(run.problems),
    )
    found = tuple(table for table in tables if table.rows)
    lead = (_MATMUL,) if _mapping(environment.get("matmul_gflops")) else ()
    return Section("environment", "Environment", lead, found) if found else None


def _times(run: Run) -> dict[str, Any]:
    known = {key: run.header[key] for key in _RUN if key in run.header}
    if "finished" in known:
        known["finished"] = known["finished"] or "no: the run was interrupted"
    return {key: moment(plain(value)) if key in ("created", "finished") else value for key, value in known.items()}


def _title(key: str) -> str:
    """A header key as people say it: its unit is shown with the value."""
    name = str(key)
    for suffix in _UNITS:
        name = name.removesuffix(suffix)
    return name.replace("_", " ")


def _facts(caption: str, facts: Mapping[str, Any], title: Callable[[str], str] = _title) -> Table:
    rows = tuple((Cell(title(key)), _fact(key, value)) for key, value in facts.items() if plain(value))
    return Table(caption, ("what", "value"), rows, facts=True)


def _fact(key: str, value: Any) -> Cell:
    for suffix, unit in _UNITS.items():
        if str(key).endswith(suffix) and isinstance(value, int | float):
            return Cell(unit(value), value)
    return Cell(plain(value))


def _runtimes(run: Run, environment: Mapping[str, Any]) -> Table:
    rates, missing = _mapping(environment.get("matmul_gflops")), _mapping(environment.get("runtimes_missing"))
    threads, empty = _mapping(environment.get("threads")), _mapping(environment.get("overhead_ns"))
    halves = {dtype: _mapping(known) for dtype, known in _mapping(environment.get(PRECISIONS)).items()}
    rows = []
    for name in dict.fromkeys((*runtimes(run), *rates, *missing)):
        placed = [m for m in run.measurements if m.case.runtime == name and m.placement]
        counted = _said(placed, lambda p: p.threads) or plain(threads.get(name))
        providers, precisions = _said(placed, lambda p: p.provider), _said(placed, lambda p: p.precision)
        texts = (providers, precisions, counted)
        others = (_measured(_mapping(known.get(GFLOPS)).get(name), number) for known in halves.values())
        facts = (_measured(rates.get(name), number), *others, _measured(empty.get(name), duration))
        rows.append((Cell(name), *map(_cell, texts), *facts, _cell(plain(missing.get(name)))))
    columns = ("runtime", "provider", "precision", "threads", "matmul (GFLOP/s)")
    products = tuple(f"matmul, {plain(dtype)} (GFLOP/s)" for dtype in halves)
    return Table("The runtimes", (*columns, *products, "empty call", "missing because"), tuple(rows))


def _said(placed: Iterable[Measurement], what: Callable[[Any], object]) -> str:
    return ", ".join(dict.fromkeys(str(what(m.placement)) for m in placed))


def _cell(text: str) -> Cell:
    return Cell(text) if text else Cell("–", tone="muted")


def _measured(value: Any, shown: Callable[[float], str]) -> Cell:
    return Cell(shown(value), value) if isinstance(value, int | float) else Cell("not measured", tone="muted")


def _problems(problems: Iterable[str]) -> Table:
    rows = tuple((Cell(problem, tone="bad"),) for problem in problems)
    return Table("Records that could not be read", ("problem",), rows)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
