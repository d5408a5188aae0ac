"""Semantics: is the graph, in float64, the function that it should be?"""

from __future__ import annotations

from collections.abc import Mapping

from ...models.signature import Array
from ..subject import rms
from .compare import Difference, difference, unit
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
        return [
            Finding(
                check=CHECK,
                status="error",
                says=f"--expected holds {', '.join(expected)}, and the outputs are {', '.join(found)}",
                remedy="name the expected arrays like the outputs",
            )
        ]
    differences = [
        difference(name, found[name], array, unit(errors.get(name), rms(array), dtype), rows) for name, array in pairs
    ]
    return [verdict(CHECK, differences, "the graph in float64 gives what is expected")]


def verdict(check: str, differences: list[Difference], good: str, remedy: str = "") -> Finding:
    """One finding for many outputs: the worst real difference, or that there is none."""
    real = [one for one in differences if one.real]
    data = {one.output: one.rms for one in differences if one.detail is None}
    if not real:
        return Finding(check=check, status="pass", says=good, data=data)
    worst = max(real, key=lambda one: one.rms / one.limit if one.limit else float("inf"))
    return Finding(check=check, status="fail", says=str(worst), remedy=remedy, data=data)


def _pairs(found: Mapping[str, Array], expected: Mapping[str, Array]) -> list[tuple[str, Array]]:
    named = [(name, array) for name, array in expected.items() if name in found]
    if named:
        return named
    return [(next(iter(found)), next(iter(expected.values())))] if len(expected) == 1 and found else []
