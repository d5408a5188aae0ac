"""Steps in a case over many runs: found where they were planted, and nowhere else."""

from __future__ import annotations

import pytest

from isorun.reports.compare.comparison import compare
from isorun.reports.compare.trend import trends

from .synthetic import Noise, case, cases, run, runtime


def planted(*factors: float) -> list[tuple[int, ...]]:
    """Where steps are found when ort-cpu takes these multiples of its time, run after run."""
    runs = [run(seed, runtime("ort-cpu", factor)) for seed, factor in enumerate(factors)]
    found = {tuple(step.at for step in trend.steps) for trend in trends(runs) if trend.case.runtime == "ort-cpu"}
    assert not any(trend.steps for trend in trends(runs) if trend.case.runtime == "torch")
    return sorted(found)


def test_no_step_where_nothing_changed() -> None:
    assert planted(1, 1, 1, 1, 1, 1) == [()]


def test_one_step_is_found_where_it_is() -> None:
    assert planted(1, 1, 1, 1.2, 1.2, 1.2) == [(3,)]


def test_two_steps_are_found_with_their_size() -> None:
    runs = [
        run(seed, runtime("ort-cpu", factor)) for seed, factor in enumerate((1, 1, 1, 1.5, 1.5, 1.5, 1.2, 1.2, 1.2))
    ]
    lines = [trend for trend in trends(runs) if trend.case.runtime == "ort-cpu"]
    assert {tuple(step.at for step in trend.steps) for trend in lines} == {(3, 6)}
    for up, down in (trend.steps for trend in lines):
        assert up.ratio == pytest.approx(1.5, rel=0.03)
        assert down.ratio == pytest.approx(1.2 / 1.5, rel=0.03)
        assert up.interval.low > 1.3


def test_steps_in_noise_are_rare() -> None:
    called = 0
    for seed in range(0, 100, 5):
        runs = [run(seed + i, noise=Noise(between=0.02), which=cases(5)) for i in range(5)]
        called += any(trend.steps for trend in trends(runs))
    assert called <= 4  # of 20 with a chance of 5 %


def test_a_run_that_lacks_the_case_leaves_a_gap() -> None:
    gap = case("m1", "torch")
    runs = [run(seed, which=[one for one in cases(4) if seed != 1 or one != gap]) for seed in range(4)]
    (line,) = (trend for trend in trends(runs) if trend.case == gap)
    assert [ns is None for ns in line.medians_ns] == [False, True, False, False]


def test_two_runs_have_no_trend() -> None:
    assert compare([run(0), run(1)]).trends == ()
    assert len(compare([run(0), run(1), run(2)]).trends) == len(cases())
