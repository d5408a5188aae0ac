"""What belongs together, what became of the rest, and what changed about right and wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from isorun.bench.records import Measurement, Run
from isorun.reports.compare.comparison import compare
from isorun.reports.compare.environment import CompareError
from isorun.reports.compare.match import Fate

from .synthetic import HEADER, case, measured, run

TIMES = [1e6, 1.01e6, 1.02e6, 1.03e6, 1.04e6]
HERE, OTHER = case("here"), case("other")


def of(*measurements: Measurement, header: dict[str, object] | None = None) -> Run:
    kept = measured(case("kept"), TIMES)
    return Run(folder=Path("run"), header=header or HEADER, measurements=(kept, *measurements))


def failed(reason: str = "killed") -> Measurement:
    return Measurement(case=HERE, status="failed", reason=reason)


def skipped(reason: str = "no GPU") -> Measurement:
    return Measurement(case=HERE, status="skipped", reason=reason)


GOOD = measured(HERE, TIMES)


@pytest.mark.parametrize(
    ("base", "head", "word", "reason", "regressed"),
    [
        (GOOD, failed("out of memory"), "newly failed", "out of memory", True),
        (GOOD, skipped("no GPU"), "newly skipped", "no GPU", False),
        (GOOD, measured(HERE, TIMES, error=50.0), "newly wrong", "outputs wrong", True),
        (GOOD, replace(GOOD, errors=()), "newly wrong", "outputs not checked", True),
        (GOOD, replace(GOOD, blocks_ns=()), "newly failed", "no samples", True),
        (failed("died"), GOOD, "works now", "died", False),
        (failed("died"), failed("died again"), "still without a time", "died again", False),
        (GOOD, None, "vanished", "", False),
        (None, GOOD, "new", "", False),
        (None, failed("died"), "new", "died", False),
    ],
)
def test_a_case_without_a_pair_of_times_has_a_fate(
    base: Measurement | None, head: Measurement | None, word: str, reason: str, regressed: bool
) -> None:
    pair = compare([of(*filter(None, [base])), of(*filter(None, [head]))])
    (fate,) = pair.fates
    assert isinstance(fate, Fate)
    assert (fate.case, fate.word) == (HERE, word)
    assert reason in fate.reason
    assert pair.regressed == regressed
    assert [change.case.model for change in pair.changes] == ["kept"]


def test_the_last_record_of_a_case_counts() -> None:
    again = measured(HERE, [2e6, 2.01e6, 2.02e6, 2.03e6, 2.04e6])
    pair = compare([of(failed(), GOOD), of(GOOD, again)])
    assert not pair.fates
    assert pair.changes[1].ratio == pytest.approx(2, rel=0.01)


def test_nothing_in_common_is_refused() -> None:
    base, head = (Run(folder=Path(name), header=HEADER, measurements=(measured(case(name), TIMES),)) for name in "ab")
    with pytest.raises(CompareError, match="no case in common"):
        compare([base, head])


def test_one_run_is_refused() -> None:
    with pytest.raises(CompareError, match="two runs"):
        compare([of()])


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [("pass", "fail", True), ("pass", "error", True), ("fail", "pass", False), ("fail", "error", False)],
)
def test_a_check_that_passes_no_more_is_a_regression(before: str, after: str, broken: bool) -> None:
    base, head = run(0), run(0)
    (verdict,) = base.verdicts
    pair = compare(
        [
            replace(base, verdicts=(replace(verdict, status=before),)),  # type: ignore[arg-type]
            replace(head, verdicts=(replace(verdict, status=after),)),  # type: ignore[arg-type]
        ]
    )
    assert len(pair.answers) == 1
    assert pair.regressed == broken


def test_a_check_that_only_one_run_asked_is_told_and_no_regression() -> None:
    base, head = run(0), replace(run(0), verdicts=())
    assert [(a.base is None, a.head is None) for a in compare([base, head]).answers] == [(False, True)]
    assert not compare([base, head]).regressed
    assert not compare([base, base]).answers


def test_errors_that_grew_are_told_the_worst_first() -> None:
    near, far, same = case("near"), case("far"), case("same")
    base = of(measured(near, TIMES), measured(far, TIMES), measured(same, TIMES, 1.0))
    head = of(measured(near, TIMES, 1.3), measured(far, TIMES, 2.9), measured(same, TIMES, 1.05))
    pair = compare([base, head])
    grown = [(e.case.model, e.base, pytest.approx(e.head)) for e in pair.errors]
    assert grown == [("far", 1.0, 2.9), ("near", 1.0, 1.3)]
    assert not pair.regressed
