"""Which differences forbid a comparison, which inform, and how they are allowed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from isorun.bench.records import Run
from isorun.reports.compare.comparison import compare
from isorun.reports.compare.environment import CompareError

from .synthetic import HEADER, run


def elsewhere(**facts: Any) -> Run:
    return replace(run(0), header={**HEADER, "environment": {**HEADER["environment"], **facts}})


def placed(**facts: Any) -> Run:
    there = run(0)
    rows = (replace(m, placement=replace(m.placement, **facts)) for m in there.measurements if m.placement)
    return replace(there, measurements=tuple(rows))


TORCH = {**HEADER["environment"]["versions"], "torch": "2.14.0"}
EXPORTER = {**HEADER["environment"]["versions"], "onnx": "1.24.0"}
FORBIDDEN = [
    (elsewhere(processor="Intel Xeon"), "processor", "processor"),
    (elsewhere(cores=64), "cores", "cores"),
    (elsewhere(threads=1), "threads", "threads"),
    (elsewhere(versions=TORCH), "versions.torch", "versions"),
    (placed(precision="bf16"), "precision.ort-cpu", "precision"),
    (placed(threads=1), "threads.torch", "threads"),
]


@pytest.mark.parametrize(("head", "key", "allow"), FORBIDDEN)
def test_what_changes_times_is_refused_by_its_key_unless_allowed(head: Run, key: str, allow: str) -> None:
    with pytest.raises(CompareError, match=f"--allow-different {key}"):
        compare([run(0), head])
    allowed = compare([run(0), head], allowed=[allow])
    assert {d.effect for d in allowed.differences} == {"allowed"}
    assert key in {d.key for d in allowed.differences}


@pytest.mark.parametrize("head", [elsewhere(os="Linux 6.9"), elsewhere(versions=EXPORTER), elsewhere(memory_bytes=1)])
def test_what_does_not_is_told(head: Run) -> None:
    assert [d.effect for d in compare([run(0), head]).differences] == ["informs"]


def test_what_one_run_did_not_record_forbids_nothing() -> None:
    bare = replace(run(0), header={"schema": 1})
    assert {d.effect for d in compare([bare, run(0)]).differences} == {"informs"}


def test_measured_rates_are_no_difference_of_environment() -> None:
    measured = {"matmul_gflops": {"torch": 1.0}, "memory_gbs": {"torch": 1.0}, "overhead_ns": {"torch": 1.0}}
    assert not compare([run(0), elsewhere(**measured)]).differences


def test_an_unknown_key_is_refused_with_those_there_are() -> None:
    with pytest.raises(CompareError, match="no such key; there are processor, cores"):
        compare([run(0), run(0)], allowed=["procesor"])


def test_all_of_several_runs_are_held_together() -> None:
    with pytest.raises(CompareError, match="AMD EPYC 9R14 against Intel Xeon against AMD EPYC 9R14"):
        compare([run(0), elsewhere(processor="Intel Xeon"), run(0)])
