"""Files of pytest-benchmark are read as runs, and what is wrong with them is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from isorun.bench import interchange
from isorun.bench.records import Case
from isorun.bench.runfolder import RunError

TEST = """
import pytest
@pytest.mark.parametrize("n", [3, 4])
def test_sum(benchmark, n):
    benchmark.pedantic(sum, args=(range(n),), rounds=23, iterations=2)
"""
CASE = Case(model="gpt2", size="small", phase="step", dtype="fp32", runtime="ort-cpu", batch=2, seq=1, past=64)


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "fullname": "t.py::test",
        "extra_info": {},
        "stats": {"median": 2e-3, "data": [1e-3, 2e-3, 3e-3]},
        **changes,
    }


def file(path: Path, *benchmarks: Any, **more: Any) -> Path:
    path.write_text(json.dumps({"benchmarks": list(benchmarks), "machine_info": {}, **more}))
    return path


def test_what_the_plugin_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "test_sums.py").write_text(TEST)
    options = ["--benchmark-json=out.json", "--benchmark-save-data", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "test_sums.py", *options]
    # Among processes that share out the tests, the plugin times nothing.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    subprocess.run(command, cwd=tmp_path, env=alone, check=True, capture_output=True)
    run = interchange.read(tmp_path / "out.json")
    assert [m.case.model for m in run.measurements] == [f"test_sums.py::test_sum[{n}]" for n in (3, 4)]
    content = json.loads((tmp_path / "out.json").read_text())
    for m, benchmark in zip(run.measurements, content["benchmarks"], strict=True):
        flat = [ns for block in m.blocks_ns for ns in block]
        assert flat == [round(seconds * 1e9) for seconds in benchmark["stats"]["data"]]
        assert sorted(map(len, m.blocks_ns)) == [2] * 7 + [3] * 3
    assert run.header["environment"]["cores"] == content["machine_info"]["cpu"]["count"]
    assert run.problems == ()


def test_a_benchmark_that_names_its_case_is_that_case(tmp_path: Path) -> None:
    named = entry(extra_info={interchange.CASE: asdict(CASE)})
    assert interchange.read(file(tmp_path / "a.json", named)).measurements[0].case == CASE


def test_without_samples_there_is_one_block(tmp_path: Path) -> None:
    run = interchange.read(file(tmp_path / "a.json", entry(stats={"median": 2e-3})))
    assert run.measurements[0].blocks_ns == ((2_000_000,),)


BROKEN = [
    entry(stats={"median": -1.0}),
    entry(stats={"median": "fast"}),
    entry(stats={"median": 1e400}),
    entry(stats={}),
    entry(extra_info={interchange.CASE: {"model": "gpt2"}}),
    entry(extra_info=None),
    {},
    7,
]


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_a_benchmark_that_cannot_be_read_is_named_and_the_rest_kept(tmp_path: Path, broken: object) -> None:
    run = interchange.read(file(tmp_path / "a.json", entry(), broken))
    assert len(run.measurements) == 1
    (problem,) = run.problems
    assert problem.startswith("a.json: benchmark 2: ")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"benchmarks": 3}', "7", "\x00", "[" * 100_000])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(RunError, match=r"a\.json"):
        interchange.read(tmp_path / "a.json")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such file"):
        interchange.read(tmp_path / "a.json")


@pytest.mark.parametrize("machine", [None, 3, {"cpu": 3}, {"cpu": {"brand_raw": None}}])
def test_odd_machines_are_no_fault(tmp_path: Path, machine: object) -> None:
    assert interchange.read(file(tmp_path / "a.json", entry(), machine_info=machine)).measurements
