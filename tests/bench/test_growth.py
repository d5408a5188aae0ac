"""The one rule of growth: planted laws get the word that they deserve, and each word has its border."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from isorun.bench.growth import TOLERANCE, adverb, grow, judge, last_doubling, told_apart
from isorun.bench.timing import Interval

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
WINDOW = 1024
LAWS: dict[str, Callable[[float], float]] = {
    "n": lambda n: 1e4 * n,
    "n·W": lambda n: 10.0 * n * min(n, WINDOW),
    "n²": lambda n: 10.0 * n * n,
    "1": lambda n: 1e6,
}


def noisy(law: Callable[[float], float], lengths: Sequence[int] = LENGTHS, *, noise: float = 0.02) -> list[list[float]]:
    rng = np.random.default_rng(3)
    return [(law(n) * np.exp(noise * rng.standard_normal(9))).tolist() for n in lengths]


@pytest.mark.parametrize("theory", ["n", "n²", "1"])
@pytest.mark.parametrize("truth", LAWS)
def test_kinds_of_growth_are_told_apart(truth: str, theory: str) -> None:
    found = grow(LENGTHS, noisy(LAWS[truth]), [LAWS[theory](n) for n in LENGTHS])
    alike = truth == theory or (truth, theory) == ("n·W", "n")  # beyond its window a window is linear
    assert found.word in (("agrees", "close") if alike else ("disagrees",))


def test_judged_is_the_last_doubling_alone() -> None:
    law = lambda n: 5e6 + 1e4 * n  # noqa: E731  # the fixed cost is as much as 500 tokens
    found = grow(LENGTHS, noisy(law, noise=0.001), [1e4 * n for n in LENGTHS])
    assert (found.low, found.high, found.word) == (4096, 8192, "close")
    assert found.exponent == pytest.approx(
        np.polyfit(np.log(LENGTHS[-2:]), np.log([*map(law, LENGTHS[-2:])]), 1)[0], abs=0.01
    )
    assert found.fit.exponent < 0.8 < found.exponent


@pytest.mark.parametrize(
    ("lengths", "first"),
    [((64, 128, 256, 512, 1024), 512), ((16, 64, 256), 64), ((512, 768, 1024, 1500), 512), ((500, 600, 700), 500)],
)
def test_the_last_doubling(lengths: tuple[int, ...], first: int) -> None:
    assert lengths[last_doubling(lengths)] == first


@pytest.mark.parametrize("lengths", [(128, 1024, 8192), (1000, 1500, 2000, 3000, 3999)])
def test_a_verdict_wants_a_range(lengths: tuple[int, ...]) -> None:
    assert judge(1.0, Interval(0.99, 1.01), 1.0, lengths) == "range too small"


@pytest.mark.parametrize(
    ("theory", "word"),
    [
        (1.01, "agrees"),
        (1.03, "close"),
        (1.0 + TOLERANCE - 1e-9, "close"),
        (1.0 + TOLERANCE + 1e-9, "too noisy"),  # the end of the interval is still within
        (1.02 + TOLERANCE + 1e-9, "disagrees"),
        (0.98 - TOLERANCE - 1e-9, "disagrees"),
        (None, "no prediction"),
    ],
)
def test_each_word_has_its_border(theory: float | None, word: str) -> None:
    assert judge(1.0, Interval(0.98, 1.02), theory, LENGTHS) == word


def test_a_wide_interval_agrees_with_nothing() -> None:
    assert judge(1.0, Interval(0.74, 1.25), 1.0, LENGTHS) == "too noisy"
    assert judge(1.0, Interval(0.0, math.inf), 1.0, LENGTHS) == "too noisy"


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (-0.1, 0.1, "hardly at all"),
        (0.1, 0.5, "less than linearly"),
        (0.9, 1.1, "linearly"),
        (1.2, 1.9, "more than linearly"),
        (1.0, 1.3, "at least linearly"),
        (0.7, 1.0, "at most linearly"),
        (0.5, 1.5, None),
        (0.0, math.inf, None),
    ],
)
def test_growth_in_a_word(low: float, high: float, word: str | None) -> None:
    assert adverb(Interval(low, high)) == word


@pytest.mark.parametrize(
    ("low", "high", "dense", "word"),
    [
        (1.0, 1.1, 1.5, "sparse"),
        (1.4, 1.6, 1.5, "dense"),
        (1.1, 1.4, 1.5, "too noisy"),
        (0.6, 1.2, 1.5, "too noisy"),  # on one side of the middle, and yet too wide to mean anything
        (0.6, 1.2, 1.7, "sparse"),  # as wide, and the predictions are further apart
        (0.5, 0.7, 1.5, "neither"),
        (1.0, 1.1, 1.2, "too near"),  # the predictions are nearer than theory is exact
    ],
)
def test_two_predictions_are_told_apart_or_not(low: float, high: float, dense: float, word: str) -> None:
    assert told_apart(Interval(low, high), 1.0, dense) == word
