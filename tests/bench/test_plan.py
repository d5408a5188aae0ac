"""What calls will take, by those that were measured."""

from __future__ import annotations

from isorun.bench.plan import Pace


def test_before_the_first_call_nothing_is_expected() -> None:
    assert Pace().expected_s(5.0) == 0.0


def test_a_larger_call_takes_longer_as_its_work_grows() -> None:
    pace = Pace()
    pace.saw(10.0, 2.0)
    pace.saw(40.0, 5.0)
    assert pace.expected_s(20.0) == 4.0, "by the nearest smaller one"
    assert pace.expected_s(80.0) == 10.0
    assert pace.expected_s(40.0) == 5.0


def test_a_smaller_call_takes_at_most_as_long_as_the_next_larger_one() -> None:
    pace = Pace()
    pace.saw(40.0, 5.0)
    pace.saw(10.0, 2.0)
    assert pace.expected_s(1.0) == 2.0


def test_a_call_without_a_time_says_nothing() -> None:
    pace = Pace()
    pace.saw(10.0, 0.0)
    assert pace.expected_s(20.0) == 0.0
