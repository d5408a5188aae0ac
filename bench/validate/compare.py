"""When are two arrays the same up to rounding? The scale of a precision, not a hand-picked tolerance.

The unit is the rounding error of the graph itself: what a runtime without optimisations loses against float64. It is
held between one ulp of the output's scale (no runtime does better) and CAP ulps (more is no rounding), so a runtime
that is wrong cannot excuse itself. A difference beyond K units is real.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...export.distance import rms
from ...models.signature import Array

K = 10.0
CAP = {"fp16": 8.0, "bf16": 8.0}
ULP = {"fp16": 2.0**-11, "bf16": 2.0**-8}
SINGLE_CAP, SINGLE_ULP = 50.0, 2.0**-24  # float32, and what quantised graphs compute in
SAME = 1e-10  # of the scale, as a unit of rounding: ten of them, 1e-9, separate one function from another
SENTINEL = 1e30  # a larger value says "masked", as an infinity does: it has no scale, and there is no rounding in it
PEAK = 30.0  # the largest of many rounding errors in units of their rms; more than that is a single wrong value
ROWS = 6.0  # the worst row in units of the whole


@dataclass(frozen=True)
class Difference:
    """How far an output is from what it should be, and the limit; `detail` where values cannot be compared."""

    output: str
    rms: float
    limit: float
    where: str
    detail: str | None = None

    @property
    def real(self) -> bool:
        """Beyond rounding."""
        return self.detail is not None or not self.rms <= self.limit

    def __str__(self) -> str:
        if self.detail is not None:
            return f"{self.output}: {self.detail}"
        return f"{self.output} differs by {self.rms:.2g} (rounding explains {self.limit:.2g}){self.where}"


def scale(array: Array) -> float:
    """The rms of the values of an array that stand for themselves: neither NaN, infinities nor mask fills."""
    values = array.astype(np.float64)
    return rms(values[np.abs(values) < SENTINEL])


def unit(error: float | None, truth: Array, dtype: str) -> float:
    """The rounding error of one output: measured, and held between one ulp and CAP ulps of its scale."""
    ulp = ULP.get(dtype, SINGLE_ULP) * scale(truth)
    most = CAP.get(dtype, SINGLE_CAP) * ulp
    return most if error is None else min(max(error, ulp), most)


def difference(name: str, found: Array | None, truth: Array, rounding: float, rows: Array | None = None) -> Difference:
    """Compare one output with its truth; `rows` (bool over the leading axes) selects what counts.

    A NaN or infinity stands for a failure unless truth has the same value there. Integers have no rounding.
    """
    if found is None:
        return Difference(name, np.inf, 0.0, "", "missing")
    if found.shape != truth.shape:
        return Difference(
            name, np.inf, 0.0, "", f"has the shape {list(found.shape)} and should have {list(truth.shape)}"
        )
    if rows is not None and rows.shape == truth.shape[: rows.ndim]:
        found, truth = found[rows], truth[rows]
    if found.dtype.kind in "biu" and truth.dtype.kind in "biu":
        rounding = 0.0
    a, b = _sentinels(found), _sentinels(truth)
    odd = ~np.isfinite(a) & ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if odd.any():
        says = f"{int(odd.sum())} of {a.size} values are not finite and should be"
        return Difference(name, np.inf, 0.0, "", says)
    if (~np.isfinite(b) & np.isfinite(a)).any():
        return Difference(name, np.inf, 0.0, "", "values are finite that should not be")
    finite = np.isfinite(b)
    gap = np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0))
    return _distance(name, gap, K * rounding)


def _sentinels(array: Array) -> Array:
    """In float64, mask fills as infinities."""
    wide = array.astype(np.float64)
    return np.where(np.abs(wide) >= SENTINEL, np.copysign(np.inf, wide), wide)


def _distance(name: str, gap: Array, limit: float) -> Difference:
    """Three looks at one gap: as a whole, row by row, and value by value; the first beyond its limit is named."""
    whole = rms(gap)
    if not gap.size:
        return Difference(name, 0.0, limit, "")
    by_row = np.sqrt(np.mean(np.square(gap), axis=-1)) if gap.ndim > 1 else gap
    if whole <= limit and float(by_row.max()) > ROWS * limit:
        return Difference(name, float(by_row.max()), ROWS * limit, f", most in row {_place(by_row)}")
    if whole <= limit and float(gap.max()) > PEAK * limit:
        return Difference(name, float(gap.max()), PEAK * limit, f", at {_place(gap)}")
    return Difference(name, whole, limit, f", most at {_place(gap)}")


def _place(array: Array) -> list[int]:
    """The indices of the largest value."""
    return [int(i) for i in np.unravel_index(int(array.argmax()), array.shape)]
