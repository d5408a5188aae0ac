"""How a run spends its time: what a point of the grid gets, and what is left out when the time is a limit."""

from __future__ import annotations

import time

from .measure import FEWEST

LEAST_S, MOST_S = 0.2, 2.0  # time for the blocks of one point on all runtimes, the twin included
AROUND = 2.0  # staging, warm-up and loading cost about as much as the blocks themselves
EXPORT_S = 10.0  # what exporting one model costs before its first length
EXPORT_SHARE = 0.6  # of a limit: exports that have not begun by then are left out
CALLS = FEWEST + 3  # calls of a point that is measured as briefly as possible: outputs, warm-up, blocks
LEAST_CASE_S = EXPORT_S + LEAST_S * AROUND


class Plan:
    """The time of one run. Without `limited` the budget is a wish: every point is measured, each as briefly as needed.

    Times are seconds of `time.monotonic()`, counted from the making of the plan.
    """

    def __init__(self, budget_s: float, points: int, *, limited: bool) -> None:
        self._budget_s = budget_s
        self._limited = limited
        self._left = points
        self._began = time.monotonic()

    def elapsed_s(self) -> float:
        """Since the plan was made."""
        return time.monotonic() - self._began

    def done(self) -> None:
        """One point is done with, measured or not."""
        self._left -= 1

    def share_s(self) -> float:
        """Time for the blocks of the next point: what is left of the budget, in equal parts for what is left to do."""
        return min(MOST_S, max(LEAST_S, self._left_s() / max(1, self._left) / AROUND))

    def refuses_export(self) -> str | None:
        """Why no further export may begin, if so."""
        if not self._limited or self.elapsed_s() < EXPORT_SHARE * self._budget_s:
            return None
        return f"left out: exports have used their {EXPORT_SHARE * self._budget_s:.0f} s of the budget"

    def truth_s(self, most_s: float) -> float:
        """The time that the truth of one point may take."""
        return min(most_s, max(LEAST_S, self._left_s())) if self._limited else most_s

    def refuses(self, call_s: float) -> str | None:
        """Why a point whose calls take `call_s` on all runtimes together may not begin, if so."""
        needed = max(LEAST_S * AROUND, CALLS * call_s)
        if not self._limited or needed <= self._left_s():
            return None
        left = max(0.0, self._left_s())
        return (
            f"left out: it needs about {needed:.1f} s, and {left:.1f} s of the budget of {self._budget_s:g} s are left"
        )

    def _left_s(self) -> float:
        return self._budget_s - self.elapsed_s()


class Pace:
    """What the calls of one model take on all runtimes together, told from those that were measured."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []

    def saw(self, amount: float, call_s: float) -> None:
        """A call that did `amount` of work took so long; 0 for one that has no time says nothing."""
        if call_s > 0:
            self._seen.append((amount, call_s))

    def expected_s(self, amount: float) -> float:
        """By the nearest smaller call, scaled by the work; else by the nearest larger one; 0 without any."""
        smaller = [seen for seen in self._seen if seen[0] <= amount]
        if smaller:
            work, call_s = max(smaller)
            return call_s * (amount / work)
        return min(self._seen, default=(0.0, 0.0))[1]
