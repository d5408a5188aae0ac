"""Other precisions in the bench: drift is said, and a runtime is held to what the graph itself means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isorun.bench import truth
from isorun.bench.client import Worker, WorkerUnsuited
from isorun.bench.drift import drift
from isorun.bench.precisions import Row, markdown, rows
from isorun.bench.records import PARITY_LIMIT
from isorun.bench.subject import compare
from isorun.export.artifact import ExportedModel
from isorun.export.finish import derive
from isorun.runtimes import all_runtimes
from isorun.runtimes.base import Unsuited

from ..conftest import Exported

SIZES = {"batch": 2, "sequence": 1, "past": 6, "source": 6}


def test_drift_is_the_worst_output_against_what_it_may_cost() -> None:
    right = {"a": np.ones(4), "b": np.full(4, 10.0)}
    graph = {"a": np.full(4, 1.002), "b": np.full(4, 10.1)}
    rounded = {"a": np.full(4, 1.0005), "b": np.full(4, 10.1)}
    half = drift(graph, right, rounded)
    assert half["output"] == "a"
    assert half["distance"] == pytest.approx(2e-3)
    assert half["limit"] == pytest.approx(1e-3), "twice what rounding the weights costs the source"
    assert half["distance"] > half["limit"]
    quantised = drift(graph, right, None)
    assert (quantised["output"], quantised["limit"]) == ("b", 1.0)


@pytest.mark.parametrize("dtype", ["fp16", "int8", "int4", "int8-weights"])
def test_the_bench_says_the_drift_and_passes_a_right_runtime(exported: Exported, tmp_path: Path, dtype: str) -> None:
    artifact = derive(exported("llama3-8b", "step"), dtype, tmp_path / dtype)
    said = truth.same_function(str(artifact.folder))
    assert said["check"] == "drift"
    assert 0 < said["distance"] <= said["limit"]
    file = str(tmp_path / "truth.npz")
    truth.write(str(artifact.folder), SIZES, file)
    assert all(
        error.ratio is not None and error.ratio < PARITY_LIMIT for error in compare(_run(artifact, "ort-cpu"), file)
    )


@pytest.mark.parametrize("dtype", ["fp16", "int8", "int4", "int8-weights"])
def test_a_runtime_that_runs_another_graph_fails(exported: Exported, tmp_path: Path, dtype: str) -> None:
    """Here one whose new tokens stand a position further on."""
    artifact = derive(exported("llama3-8b", "step"), dtype, tmp_path / dtype)
    file = str(tmp_path / "truth.npz")
    truth.write(str(artifact.folder), SIZES, file)
    found = _run(artifact, "ort-cpu", shift=1)
    assert max(error.ratio or 0.0 for error in compare(found, file)) > PARITY_LIMIT


def test_torch_runs_half_and_says_that_it_has_no_quantised_source(exported: Exported, tmp_path: Path) -> None:
    half = derive(exported("gpt2", "step"), "fp16", tmp_path / "fp16")
    assert {array.dtype.name for array in _run(half, "torch").values()} == {"float16"}
    eight = derive(exported("gpt2", "step"), "int8", tmp_path / "int8")
    with pytest.raises(Unsuited, match="torch runs the source, and only the graph is int8"):
        all_runtimes()["torch"].prepare(eight, 1)
    with Worker(tmp_path / "log", threads=1) as worker, pytest.raises(WorkerUnsuited, match="the graph is int8"):
        worker.ask("load", folder=str(eight.folder), runtime="torch", threads=1)


def test_the_table_of_precisions(tmp_path: Path) -> None:
    found = list(rows(["bert-base"], "tiny", ["fp32", "fp16", "int4"]))
    assert [(row.model, row.phase) for row in found] == [("bert-base", "forward")]
    for row in found:
        assert row.reasons == {}
        assert row.errors["fp32"] < 1e-6 < row.errors["fp16"] < 3e-3 < row.errors["int4"] < 0.5
    failed = Row("a", "step", {"fp16": 0.00123}, {"int4": "ort-cpu refuses: a | b"})
    assert markdown([failed], ["fp16", "int4"]).splitlines() == [
        "| preset | phase | fp16 | int4 |",
        "|---|---|---:|---:|",
        "| `a` | step | 1.2e-03 | ort-cpu refuses: a / b |",
    ]


def _run(artifact: ExportedModel, runtime: str, shift: int = 0) -> dict[str, np.ndarray]:
    feeds = artifact.signature().feeds(SIZES)
    if shift:
        feeds["position_ids"] = feeds["position_ids"] + shift
    session = all_runtimes()[runtime].prepare(artifact, 1)
    return session.fetch(session.run(session.stage(feeds)))
