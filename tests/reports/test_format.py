"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from isorun.bench.timing import Interval
from isorun.reports import format


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (0.31, "0.310 ns"),
        (999.6, "1.00 µs"),
        (12_345, "12.3 µs"),
        (1_234_567, "1.23 ms"),
        (987e6, "987 ms"),
        (61.5e9, "61.5 s"),
        (1.2345e13, "12,345 s"),
    ],
)
def test_duration(ns: float, text: str) -> None:
    assert format.duration(ns) == text


def test_an_interval_has_the_unit_of_its_number() -> None:
    assert format.duration(1.34e6, Interval(0.98e6, 1.7e6)) == "1.34 ms (0.980–1.70)"
    assert format.duration(0, Interval(0, 1.55e6)) == "0 ms (0–1.55)"
    assert format.duration(0, Interval(0, math.inf)) == "0 ns (no interval)"
    assert format.ratio(1.344, Interval(1.296, 1.384)) == "1.34× (1.30–1.38)"
    assert format.exponent(1.0234, Interval(0.978, 1.061)) == "1.02 (0.98–1.06)"
    assert format.exponent(-0.001, Interval(-1.39, 0.004)) == "0.00 (-1.39 to 0.00)"


def test_an_interval_that_says_nothing_is_not_printed() -> None:
    assert format.ratio(1.5, Interval(0.0, math.inf)) == "1.50× (no interval)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (3100, "3,100"),
        (2.9999, "3.00"),
        (3.1e-7, "3.10e-7"),
        (-0.5, "-0.500"),
        (2.5e9, "2.50e9"),
        (math.inf, "∞"),
        (math.nan, "not a number"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert format.number(value) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1,023 B"), (3 * 2**33, "24.0 GiB"), (1536, "1.50 KiB")]
)
def test_memory(count: int, text: str) -> None:
    assert format.memory(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(4.24, "4.2 s"), (725, "12 min 5 s"), (12_000, "3 h 20 min")])
def test_elapsed(seconds: float, text: str) -> None:
    assert format.elapsed(seconds) == text


def test_plain_flattens_what_a_header_may_hold() -> None:
    assert format.plain({"torch": 1, "ort-cpu": [1, 2], "x": None}) == "torch 1, ort-cpu 1, 2, x"
    assert format.plain(True) == "yes"
    assert format.plain(None) == ""
