"""Semantics: is the graph, in float64, the function that it should be?"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...models.signature import Array
from ..client import WorkerError
from . import rulers
from .candidate import Candidate
from .compare import Difference, difference, scale
from .evaluators import Evaluators
from .finding import Finding, verdict

CHECK = "semantics"
Units = Callable[[Mapping[str, Array]], Mapping[str, float]]  # how far outputs may be from these arrays
REMEDY = "export it again; the export or the file is at fault"
ROUNDED = 1e-6  # of the scale: the most that constants rounded to float32 explain
ROWS = "compare_rows"  # in an --expected file: a boolean array that says which rows count


def against_expected(
    found: Mapping[str, Array],
    expected: Mapping[str, Array],
    units: Callable[[Mapping[str, Array]], Mapping[str, float]],
) -> list[Finding]:
    """Compare outputs with arrays that the user trusts, by name, or the one output with the one array."""
    rows = expected.get(ROWS)
    pairs = _pairs(found, {name: array for name, array in expected.items() if name != ROWS})
    if not pairs:
        says = f"--expected holds {', '.join(expected)}, and the outputs are {', '.join(found)}"
        return [Finding(check=CHECK, status="error", says=says, remedy="name the expected arrays like the outputs")]
    if not any(array.size for _, array in pairs):
        says = f"--expected holds empty arrays for {', '.join(name for name, _ in pairs)}: nothing would be compared"
        return [Finding(check=CHECK, status="error", says=says)]
    if rows is not None and (problem := _misfit(rows, [array for _, array in pairs])):
        return [Finding(check=CHECK, status="error", says=problem)]
    allowed = units(dict(pairs))
    differences = [difference(name, found.get(name), array, allowed[name], rows) for name, array in pairs]
    return [verdict(CHECK, differences, "the graph in float64 gives what is expected")]


def against_source(
    candidate: Candidate,
    evaluators: Evaluators,
    feeds: Mapping[str, Array],
    graph: Mapping[str, Array],
    source: Mapping[str, Array],
    *,
    exact: bool = True,
) -> tuple[list[Difference], list[Difference]]:
    """Graph and source on the same inputs in float64: what differs, and what differs by rounded constants alone.

    `exact` says that the graph was evaluated in float64, and not on a runtime in its place.
    """
    units = rulers.meaning(candidate, evaluators, feeds, source, exact=exact)
    real = _real(graph, source, units)
    if not real or any(one.detail or one.rms > ROUNDED * scale(source[one.output]) for one in real):
        return real, []
    try:
        sharp = evaluators.run("reference-sharp", feeds)
    except WorkerError:  # there is no such constant
        return real, []
    return ([], real) if not _real(sharp, source, units) else (real, [])


def rounding(rounded: list[str]) -> Finding:
    """The note on a graph that is its source but for constants that it keeps in float32."""
    says = f"the same function but for constants rounded to float32: {rounded[0]}; with the exact ones there is none"
    return Finding(check=CHECK, status="note", says=says, data={"rounded": rounded})


def _real(graph: Mapping[str, Array], source: Mapping[str, Array], units: Mapping[str, float]) -> list[Difference]:
    gaps = (difference(name, graph.get(name), array, units[name]) for name, array in source.items())
    return [gap for gap in gaps if gap.real]


def _misfit(rows: Array, arrays: list[Array]) -> str | None:
    """What is wrong with `compare_rows`, or None."""
    if rows.dtype != bool or not rows.ndim:
        return f"{ROWS} is {rows.dtype} with {rows.ndim} axes and should be bool with at least 1"
    if not rows.any():
        return f"{ROWS} selects no row, so nothing would be compared"
    if not any(rows.shape == array.shape[: rows.ndim] for array in arrays):
        shapes = ", ".join(str(list(array.shape)) for array in arrays)
        return f"{ROWS} has the shape {list(rows.shape)}, which begins no expected shape: {shapes}"
    return None


def _pairs(found: Mapping[str, Array], expected: Mapping[str, Array]) -> list[tuple[str, Array]]:
    """By name, as soon as one name fits: the others are outputs that the model lacks."""
    if any(name in found for name in expected):
        return list(expected.items())
    return [(next(iter(found)), next(iter(expected.values())))] if len(expected) == 1 and found else []
