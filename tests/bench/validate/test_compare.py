"""When are two arrays the same? Rounding passes at every scale; a real difference, NaN or another shape never does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from isorun.bench.validate import rulers, semantics
from isorun.bench.validate.compare import difference, scale, unit

RNG = np.random.default_rng(0)
TRUTH = RNG.standard_normal((4, 6, 32))
NAN, INF = float("nan"), float("inf")


def real(found: Any, truth: Any = TRUTH, rows: Any = None) -> bool:
    return difference("y", found, truth, unit(None, truth, "fp32") / 50, rows).real


def changed(place: Any, value: float, truth: Any = TRUTH) -> Any:
    array = truth.copy()
    array[place] = value
    return array


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_rounding_passes_at_every_scale_and_a_hundredfold_does_not(size: float) -> None:
    truth = size * TRUTH
    assert not real(truth.astype(np.float32), truth)
    assert real(truth * (1 + 1e-5 * RNG.standard_normal(TRUTH.shape)), truth)


def test_one_wrong_value_and_one_wrong_row_are_seen_and_located() -> None:
    one = difference("y", changed((2, 3, 5), TRUTH[2, 3, 5] + 1e-3), TRUTH, 1e-7)
    assert one.real
    assert "[2, 3" in str(one)
    row = difference("y", changed((1, 4), TRUTH[1, 4] + 3e-5), TRUTH, 1e-7)
    assert row.real
    assert "[1, 4" in str(row)


@pytest.mark.parametrize("value", [NAN, INF, -INF, 3.4e38])
def test_a_value_that_is_not_finite_never_passes(value: float) -> None:
    assert real(changed((0, 0, 0), value))
    assert real(TRUTH, changed((0, 0, 0), value)) or np.isnan(value)
    assert not real(changed((0, 0, 0), value), changed((0, 0, 0), value))


def test_a_truth_that_is_nan_is_no_excuse_for_a_number() -> None:
    assert real(TRUTH, changed((0, 0, 0), NAN))


@pytest.mark.parametrize("fill", [-INF, float(np.finfo(np.float32).min)])
def test_mask_fills_do_not_hide_what_is_beside_them(fill: float) -> None:
    truth = changed((slice(None), slice(None), slice(0, 8)), fill)
    assert scale(truth) == pytest.approx(1, rel=0.1)
    assert not real(truth.astype(np.float32), truth)
    assert real(changed((1, 1, 20), 5.0, truth), truth)


@pytest.mark.parametrize("found", [None, TRUTH[:3], TRUTH[..., None], TRUTH.reshape(6, 4, 32)])
def test_missing_outputs_and_other_shapes(found: Any) -> None:
    assert real(found)


def test_integers_have_no_rounding() -> None:
    ids = np.arange(30_000)
    assert not real(ids.copy(), ids)
    assert real(changed(7, 8, ids), ids)
    assert real(np.array([True, False]), np.array([True, True]))


def test_rows_select_what_counts() -> None:
    rows = np.ones((4, 6), bool)
    rows[1] = False
    assert not real(changed(1, 9.0), TRUTH, rows)
    assert real(changed(2, 9.0), TRUTH, rows)


def test_empty_arrays_are_equal() -> None:
    assert not real(np.zeros((0, 3)), np.zeros((0, 3)))


def expect(found: dict[str, Any], expected: dict[str, Any]) -> tuple[str, str]:
    (finding,) = semantics.against_expected(found, expected, lambda truth: rulers.single(truth, {}))
    return finding.status, finding.says


def test_expected_arrays_are_found_by_name_or_as_the_only_one() -> None:
    found = {"y": TRUTH, "z": TRUTH + 1}
    assert expect(found, {"z": TRUTH + 1})[0] == "pass"
    assert expect(found, {"z": TRUTH})[0] == "fail"
    assert expect(found, {"anything": TRUTH})[0] == "pass"
    status, says = expect(found, {"a": TRUTH, "b": TRUTH})
    assert status == "error"
    assert "a, b" in says
    assert "y, z" in says


def test_an_expected_output_that_the_model_lacks_fails() -> None:
    assert expect({"y": TRUTH}, {"y": TRUTH, "present": TRUTH}) == ("fail", "present: missing")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.zeros((4, 6), bool), "selects no row"),
        (np.ones((4, 6), np.int64), "should be bool"),
        (np.array(True), "at least 1"),
        (np.ones((6, 4), bool), "[6, 4]"),
    ],
)
def test_compare_rows_that_would_compare_nothing(rows: Any, words: str) -> None:
    status, says = expect({"y": TRUTH}, {"y": TRUTH, "compare_rows": rows})
    assert status == "error"
    assert words in says
