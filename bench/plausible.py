"""Times that cannot be: faster than the machine, not growing with the work, or with a first run among them.

So do asynchronous calls and missing warm-up look from outside, in published tables as in a harness at fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from .records import Measurement

# Times the rate of a large matrix product, beyond which work was not done: a causal kernel skips half of what is
# counted, and the rate was taken in a few milliseconds of a machine that may have been busy.
HEADROOM = 3.0
SHARE = 0.5  # of the earlier time: added work that takes less than this at the full rate may vanish beside it
FLAT, MORE = 1.1, 64.0  # without a rate: a time that grew by less than this factor while work grew by more than that
# Keys of a machine's facts (see `yardsticks`): the rates of matrix products by runtime, and the facts of the other
# precisions than float32, by precision.
GFLOPS, PRECISIONS, FLOAT = "matmul_gflops", "precisions", "fp32"
FIRST = 3.0  # a first call that takes so many times the median of the others was not warm


def ceiling(machine: Mapping[str, Any], dtype: str) -> float | None:
    """Operations a nanosecond that the best of the runtimes reaches in a precision, or in float32 if that is more.

    Parts of a half graph are computed in float32, and on some processors all of it. None: not known for the precision.
    """
    own, single = (gflops(machine, kind).values() for kind in (dtype, FLOAT))
    return max((*own, *single)) if own else None


def of_precision(machine: Mapping[str, Any], dtype: str) -> Mapping[str, Any]:
    """The facts of a machine about one precision."""
    others = machine.get(PRECISIONS)
    found = machine if dtype == FLOAT else others.get(dtype) if isinstance(others, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def gflops(machine: Mapping[str, Any], dtype: str) -> dict[str, float]:
    """Operations a nanosecond that each runtime's matrix product reaches in a precision, where that is known."""
    found = of_precision(machine, dtype).get(GFLOPS)
    if not isinstance(found, Mapping):
        return {}
    return {name: rate for name, rate in found.items() if isinstance(rate, int | float)}


def refusal(m: Measurement, shorter: Sequence[Measurement], peak_gflops: float | None) -> str | None:
    """Why a measured time is not to be believed; None when nothing speaks against it.

    `shorter` are the measurements of the same line at shorter lengths; `peak_gflops` is the rate of a large matrix
    product in the same precision on the same device, in operations a nanosecond.
    """
    return (above(m, peak_gflops) if peak_gflops else None) or stalled(m, shorter, peak_gflops)


def above(m: Measurement, peak_gflops: float) -> str | None:
    """Whether the operations that the time implies are more than the device can do."""
    flops = m.flops or m.graph_flops
    if m.median_ns is None or not flops or flops / m.median_ns <= HEADROOM * peak_gflops:
        return None
    rate = f"{flops / m.median_ns:,.0f} GFLOP/s, where a matrix product reaches {peak_gflops:,.0f}"
    return f"impossible time: {rate}; was the call waited for?"


def stalled(m: Measurement, shorter: Sequence[Measurement], peak_gflops: float | None) -> str | None:
    """Whether the work grew since a shorter length and the time did not, as when only the launch is timed."""
    for before in shorter:
        if not (m.median_ns and before.median_ns and m.flops and before.flops):
            continue
        added, grown = m.flops - before.flops, m.median_ns - before.median_ns
        if peak_gflops:
            needed = added / (HEADROOM * peak_gflops)
            impossible = needed > SHARE * before.median_ns and needed > grown
        else:
            impossible = m.flops > MORE * before.flops and m.median_ns < FLAT * before.median_ns
        if impossible:
            return (
                f"impossible time: {m.flops / before.flops:.3g} times the work of n = {before.case.length} in "
                f"{m.median_ns / before.median_ns:.3g} times the time; was the call waited for?"
            )
    return None


def cold(m: Measurement) -> str | None:
    """Whether the first call of a shape is among the samples: its time belongs apart, and would bend every mean."""
    samples = [ns for block in m.blocks_ns for ns in block]
    if len(samples) < 4:
        return None
    first, rest = samples[0], median(samples[1:])
    if first <= FIRST * rest:
        return None
    if any(other > FIRST * rest for other in samples[1:]):
        return None  # a machine that is interrupted now and then, and not a first call
    return f"the first run of this shape is among the samples, {first / rest:.3g} times the others: warm up first"
