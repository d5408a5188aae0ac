"""The fixture for users' own tests: it passes what is right, and fails with the findings."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest

from isorun.bench import mutations
from isorun.bench.validate import plugin
from isorun.bench.validate.plugin import assert_same

from ...conftest import Exported

ROOT = Path(__file__).parents[3]


def test_a_right_export_passes(exported: Exported) -> None:
    assert_same(exported("lstm", "forward").folder, reference="lstm@tiny", runtimes=["ort-cpu"])


def test_a_fault_fails_with_the_findings(exported: Exported, tmp_path: Path) -> None:
    artifact = exported("lstm", "forward")
    mutations.kinds()
    mutant = mutations.apply("matrix negated", onnx.load(artifact.model_path))
    assert mutant is not None
    onnx.save(mutant, tmp_path / "mutant.onnx")
    with pytest.raises(AssertionError, match=r"fail +semantics(?s:.*)first difference: 'logits'"):
        assert_same(tmp_path / "mutant.onnx", reference=str(artifact.model_path), runtimes=["ort-cpu"])


def test_arrays_are_taken_as_files(exported: Exported, tmp_path: Path) -> None:
    artifact = exported("gpt2", "forward")
    feeds = artifact.signature().feeds({"batch": 2, "sequence": 5})
    np.savez(tmp_path / "inputs.npz", **feeds)
    np.savez(tmp_path / "expected.npz", logits=np.zeros((2, 5, 256), np.float32))
    files = {"inputs": tmp_path / "inputs.npz", "expected": str(tmp_path / "expected.npz")}
    with pytest.raises(AssertionError, match="logits differs"):
        assert_same(artifact.model_path, **files, runtimes=["ort-cpu"])


def test_an_install_makes_the_fixture_known() -> None:
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert entries == {"isorun": plugin.__name__}
