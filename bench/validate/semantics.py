"""Semantics: is the graph, in float64, the function that it should be?"""

from __future__ import annotations

from collections.abc import Mapping

from ...models.signature import Array
from .compare import SAME, Difference, difference, scale, unit
from .finding import Finding

CHECK = "semantics"
ROWS = "compare_rows"  # in an --expected file: a boolean array that says which rows count


def against_expected(
    found: Mapping[str, Array], expected: Mapping[str, Array], dtype: str, errors: Mapping[str, float]
) -> list[Finding]:
    """Compare outputs with arrays that the user trusts, by name, or the one output with the one array."""
    rows = expected.get(ROWS)
    pairs = _pairs(found, {name: array for name, array in expected.items() if name != ROWS})
    if not pairs:
        says = f"--expected holds {', '.join(expected)}, and the outputs are {', '.join(found)}"
        return [Finding(check=CHECK, status="error", says=says, remedy="name the expected arrays like the outputs")]
    if rows is not None and (problem := _misfit(rows, [array for _, array in pairs])):
        return [Finding(check=CHECK, status="error", says=problem)]
    differences = [
        difference(name, found.get(name), array, unit(errors.get(name), array, dtype), rows) for name, array in pairs
    ]
    return [verdict(CHECK, differences, "the graph in float64 gives what is expected")]


def against_source(found: Mapping[str, Array], source: Mapping[str, Array]) -> Finding:
    """Graph and source on the same inputs, both in float64."""
    differences = [difference(name, found.get(name), array, SAME * scale(array)) for name, array in source.items()]
    remedy = "export it again; the export or the file is at fault"
    return verdict(CHECK, differences, "graph and source are one function in float64", remedy)


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


def verdict(check: str, differences: list[Difference], good: str, remedy: str = "", bad: str = "") -> Finding:
    """One finding for many outputs: the worst real difference, after what `bad` says of it, or that there is none."""
    real = [one for one in differences if one.real]
    data = {one.output: one.rms for one in differences if one.detail is None}
    if not real:
        return Finding(check=check, status="pass", says=good, data=data)
    worst = max(real, key=lambda one: one.rms / one.limit if one.limit else float("inf"))
    return Finding(check=check, status="fail", says=f"{bad}: {worst}" if bad else str(worst), remedy=remedy, data=data)


def _pairs(found: Mapping[str, Array], expected: Mapping[str, Array]) -> list[tuple[str, Array]]:
    """By name, as soon as one name fits: the others are outputs that the model lacks."""
    if any(name in found for name in expected):
        return list(expected.items())
    return [(next(iter(found)), next(iter(expected.values())))] if len(expected) == 1 and found else []
