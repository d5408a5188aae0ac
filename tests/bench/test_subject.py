"""What is timed is what is checked: a real model in this process, and outputs that are wrong in every way."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from isorun.bench import truth
from isorun.bench.measure import wrong
from isorun.bench.records import PARITY_LIMIT
from isorun.bench.subject import RULER, Subject, compare

from ..conftest import Exported

SIZES = {"batch": 2, "sequence": 9, "past": 4, "source": 4}


@pytest.mark.parametrize("runtime", ["torch", "ort-cpu"])
def test_a_right_runtime_is_as_near_to_truth_as_its_precision_allows(
    exported: Exported, tmp_path: Path, runtime: str
) -> None:
    artifact = exported("llama3-8b", "step")
    file = tmp_path / "truth.npz"
    truth.write(str(artifact.folder), SIZES, str(file))
    subject = Subject(str(artifact.folder), runtime, threads=1)
    errors = subject.stage(SIZES, str(file))["errors"]
    assert [error["name"] for error in errors] == [spec.name for spec in artifact.signature().outputs]
    assert all(0 <= error["rms"] <= PARITY_LIMIT * error["ruler_rms"] for error in errors)
    assert 0 < errors[0]["ruler_rms"] < 1e-5 * errors[0]["scale"]
    assert all(ns > 0 for ns in subject.block(0.01)["ns"])
    facts = subject.facts()
    assert facts["placement"]["threads"] == 1
    assert facts["peak_bytes"] > 1 << 20


def test_on_ort_every_node_is_placed_on_the_provider_that_was_asked_for(exported: Exported) -> None:
    artifact = exported("gpt2", "forward")
    placed = Subject(str(artifact.folder), "ort-cpu", threads=1).facts()["placement"]
    assert placed["provider"] == "CPUExecutionProvider"
    assert set(placed["nodes"]) == {"CPUExecutionProvider"}
    assert placed["nodes"]["CPUExecutionProvider"] > artifact.ops["Attention"]


@pytest.fixture
def truth_file(tmp_path: Path) -> Path:
    file = tmp_path / "truth.npz"
    np.savez(file, y=np.array([3.0, 4.0]), **{RULER + "y": np.array(1e-7)})
    return file


def test_distance_in_units_of_the_ruler(truth_file: Path) -> None:
    (error,) = compare({"y": np.array([3.0, 4.0 + 2e-6])}, str(truth_file))
    assert error.scale == pytest.approx(math.sqrt(12.5))
    assert error.rms == pytest.approx(2e-6 / math.sqrt(2), rel=1e-6)
    assert error.ratio == pytest.approx(20 / math.sqrt(2), rel=1e-6)
    assert "14.1 times as far from float64 truth" in str(wrong([error]))


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        ({}, "y: missing"),
        ({"y": np.zeros((1, 2))}, "shape (1, 2), should be (2,)"),
        ({"y": np.array([3.0, np.nan])}, "1 of 2 values are not finite"),
        ({"y": np.array([np.inf, -np.inf])}, "2 of 2 values are not finite"),
    ],
)
def test_what_cannot_be_compared_is_wrong(truth_file: Path, outputs: dict[str, np.ndarray], reason: str) -> None:
    assert reason in str(wrong(compare(outputs, str(truth_file))))


def test_right_outputs_are_not_wrong(truth_file: Path) -> None:
    assert wrong(compare({"y": np.array([3.0, 4.0 + 1e-7])}, str(truth_file))) is None
