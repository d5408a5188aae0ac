"""A run in pytest-benchmark's format: its own statistics, its own reader, and the way back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.stats import Stats

from isorun.bench.benchmark_file import stats, write
from isorun.bench.interchange import read

from ..fakes import fake_run


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 31])
def test_the_statistics_are_those_of_pytest_benchmark(count: int) -> None:
    data = np.random.default_rng(count).exponential(size=count).tolist()
    theirs = Stats()
    for value in data:
        theirs.update(value)
    mine = stats(data)
    for name in Stats.fields:
        assert mine[name] == pytest.approx(getattr(theirs, name)) if name != "outliers" else True, name
    assert mine["outliers"] == theirs.outliers


def test_the_way_back_keeps_every_case_and_every_sample(tmp_path: Path) -> None:
    run = fake_run()
    (tmp_path / "times.json").write_text(write(run))
    back = read(tmp_path / "times.json")
    assert back.problems == ()
    timed = [m for m in run.measurements if m.status == "ok"]
    assert [(m.case, m.errors) for m in back.measurements] == [(m.case, m.errors) for m in timed]
    for mine, theirs in zip(timed, back.measurements, strict=True):
        assert [ns for block in mine.blocks_ns for ns in block] == [ns for block in theirs.blocks_ns for ns in block]


def test_pytest_benchmark_compare_reads_it(tmp_path: Path) -> None:
    (tmp_path / "0001_run.json").write_text(write(fake_run()))
    command = [sys.executable, "-m", "pytest_benchmark", "compare", str(tmp_path / "0001_run.json"), "--csv=out.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "gpt2@small step fp32 batch 1 n = 128 [ort-cpu]" in done.stdout + (tmp_path / "out.csv").read_text()


def test_a_row_without_a_time_is_no_benchmark() -> None:
    run = fake_run()
    left = len([m for m in run.measurements if m.status != "ok"])
    assert left > 0
    assert len(json.loads(write(run))["benchmarks"]) == len(run.measurements) - left
