"""What two processes of the same code differ by in a run, in words."""

from __future__ import annotations

import math

from ..bench.records import Run
from ..bench.twins import spread
from .format import listing, number, plural


def control(run: Run) -> str:
    """What the brackets of ratios hold beside the noise of the blocks."""
    found = spread(run.measurements)
    if found is None:
        return (
            "This run has no control, a second process of one runtime: brackets hold the noise of the blocks alone, "
            "and two processes of the same code may lie further apart."
        )
    differ = f"{_percent(found.typical)} in the median of {plural(found.cases, 'case')}"
    return (
        f"Control: two processes of {listing(found.runtimes)}, the same code on the same inputs, differ by {differ}. "
        f"What the noise of their blocks leaves of that, ± {_percent(found.apart)} at 95 %, is in every bracket of a "
        "ratio of two runtimes; brackets of times hold the blocks of one process."
    )


def controlled(run: Run) -> str:
    """Which runtime had a second process, and for how many cases."""
    found = spread(run.measurements)
    return f"{listing(found.runtimes)} twice, in {plural(found.cases, 'case')}" if found else "none"


def _percent(logarithm: float) -> str:
    return f"{number(100 * math.expm1(logarithm), 2)} %"
