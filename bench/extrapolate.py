"""What a fitted law answers beyond the measured lengths: a time with its interval, the largest n, a whole generation.

The intervals are those of the fit (see `complexity`): they cover noise and misfit, not another law beyond the range,
such as memory that runs out or a cache that the weights no longer share. The unit is the fit's own: nanoseconds, bytes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .complexity import Array, Fit, percentiles


class Estimate(NamedTuple):
    """An estimate between the ends of its 95 % interval."""

    low: float
    mid: float
    high: float


def predict(fit: Fit, n: float) -> Estimate:
    """T(n), also far beyond the measured lengths.

    Raises:
        ValueError: n is below 1.
    """
    if n < 1:
        raise ValueError(f"a prediction needs a length of at least 1, got {n:g}")
    return _estimate(_totals(fit, np.array([1.0, n, n * n])))


def largest(fit: Fit, budget: float) -> Estimate:
    """The largest whole n with T(n) ≤ `budget`, in the unit of the fit.

    `low` is the n that fits for sure, `high` the one that may still do. 0: not even n = 1 fits; infinity: what was
    measured does not grow.

    Raises:
        ValueError: a budget that is not positive and finite.
    """
    if not 0 < budget < math.inf:
        raise ValueError(f"a budget must be positive and finite, got {budget:g}")
    lengths = _inverse(np.vstack([fit.coefficients, fit.draws]), budget)
    return Estimate(*(float(np.floor(n)) for n in _estimate(lengths)))


def generation(forward: Fit, step: Fit | None, prompt: int, tokens: int) -> Estimate:
    """The time to generate `tokens` tokens after a prompt, from the laws of a forward pass and of a decode step.

    With a cache: one pass over the prompt, which yields the first token, and a step over the past for each further one.
    Without (`step` None): a pass over everything so far for each token, so that the sum grows by one power of n more.

    Raises:
        ValueError: an empty prompt, or no token.
    """
    return _estimate(_generated(forward, step, prompt, tokens))


def saving(forward: Fit, step: Fit, prompt: int, tokens: int) -> Estimate:
    """How many times as long the same generation takes without the cache as with it.

    Raises:
        ValueError: an empty prompt, or no token.
    """
    cached, alone = _generated(forward, step, prompt, tokens), _generated(forward, None, prompt, tokens)
    return _estimate(alone[: len(cached)] / cached)


def _generated(forward: Fit, step: Fit | None, prompt: int, tokens: int) -> Array:
    """The time of a generation by the estimates, which come first, and by each of the draws."""
    if prompt < 1 or tokens < 1:
        raise ValueError(f"a generation needs a prompt and a token, got {prompt} and {tokens}")
    if step is None:
        return _totals(forward, _powers(prompt, prompt + tokens - 1))
    first = _totals(forward, _powers(prompt, prompt))
    steps = _totals(step, _powers(prompt, prompt + tokens - 2))
    # Both fits may have been drawn from the same seed: paired in that order their deviations would add up.
    order = np.random.default_rng(0).permutation(np.arange(1, min(len(first), len(steps))))
    return np.concatenate([[first[0] + steps[0]], first[1 : 1 + len(order)] + steps[order]])


def _powers(low: int, high: int) -> Array:
    """The sums of n⁰, n¹ and n² over low ≤ n ≤ high, exact also for long ranges; zeros for an empty one."""
    if high < low:
        return np.zeros(3)
    count = high - low + 1
    ones = (low + high) * count // 2
    squares = (high * (high + 1) * (2 * high + 1) - (low - 1) * low * (2 * low - 1)) // 6
    return np.array([count, ones, squares], dtype=np.float64)


def _totals(fit: Fit, powers: Array) -> Array:
    """c·powers for the estimate, which comes first, and for each of the fit's draws: [1 + resamples]."""
    totals: Array = np.vstack([fit.coefficients, fit.draws]) @ powers
    return totals


def _inverse(coefficients: Array, budget: float) -> Array:
    """n ≥ 0 with c0 + c1·n + c2·n² = budget for each row of coefficients ≥ 0; infinite where there is no growth."""
    c0, c1, c2 = coefficients.T
    left = budget - c0
    root = c1 + np.sqrt(c1 * c1 + 4 * c2 * left.clip(0))  # this form loses no digits where c2 is small
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(left < 0, 0.0, np.where(root > 0, 2 * left / root, np.inf))


def _estimate(values: Array) -> Estimate:
    """The first value with the interval that the others give it."""
    found = percentiles(values[1:], values[0])
    return Estimate(found.low, float(values[0]), found.high)
