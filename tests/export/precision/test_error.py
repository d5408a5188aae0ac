"""The error in the manifest is the one that can be measured by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from isorun.commands.options import Dtype
from isorun.export.adoption import adopt_file
from isorun.export.artifact import DTYPES, ArtifactError, ExportedModel
from isorun.export.finish import derive
from isorun.export.precision import error
from isorun.export.precision.evaluate import Unevaluable, evaluate

from ...conftest import Exported


def test_relative_error_and_what_is_not_finite() -> None:
    truth = {"a": np.array([3.0, 4.0]), "b": np.zeros(2), "c": np.ones(2)}
    found = {"a": np.array([3.0, 4.5]), "b": np.array([0.0, 1e-3]), "c": np.array([1.0, np.nan])}
    errors = error.relative(found, truth)
    assert errors["a"] == pytest.approx(0.5 / 5)
    assert errors["b"] == pytest.approx(1e-3 / np.sqrt(2))
    assert errors["c"] == float("inf")


def test_the_manifest_holds_what_can_be_measured_by_hand(exported: Exported, tmp_path: Path) -> None:
    single = exported("gpt2", "step")
    eight = ExportedModel.open(derive(single, "int8", tmp_path / "int8").folder)
    module = single.module()
    feeds = module.signature.feeds(module.example, padding="left")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    for name, value in eight.session.items():  # without them integers saturate on some processors
        options.add_session_config_entry(name, value)
    found = onnxruntime.InferenceSession(str(eight.model_path), options).run(["logits"], feeds)[0]
    with torch.no_grad():
        truth = module.double()(*(
            torch.tensor(a).double() if a.dtype == np.float32 else torch.tensor(a) for a in feeds.values()
        ))[0].numpy()  # fmt: skip
    by_hand = np.linalg.norm(found - truth) / np.linalg.norm(truth)
    assert eight.errors["logits"] == pytest.approx(by_hand, rel=1e-6)
    assert set(eight.errors) == {spec.name for spec in eight.signature().outputs}


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "int8", "int8-weights", "int4"])
def test_the_same_conversion_gives_the_same_bytes(exported: Exported, tmp_path: Path, dtype: str) -> None:
    one, other = (derive(exported("gpt2", "step"), dtype, tmp_path / name) for name in "ab")
    assert one.files == other.files
    assert one.errors == other.errors


def test_float32_itself_has_an_error_in_its_manifest(exported: Exported) -> None:
    assert all(1e-8 < value < 1e-6 for value in exported("llama3-8b", "step").errors.values())


def test_too_little_memory_is_a_note_and_no_crash(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error, "SHARE", 0.0)
    four = derive(exported("gpt2", "step"), "int4", tmp_path / "int4")
    assert four.errors == {}
    assert "error not measured: it needs" in four.notes[-1]


def test_precisions_are_derived_from_float32_alone(exported: Exported, tmp_path: Path) -> None:
    half = derive(exported("gpt2", "step"), "fp16", tmp_path / "fp16")
    with pytest.raises(ArtifactError, match="is fp16; other precisions and targets are made from fp32"):
        derive(half, "int8", tmp_path / "int8")


def test_the_command_offers_what_the_manifest_knows() -> None:
    assert tuple(Dtype) == DTYPES


def test_a_file_without_a_source_is_held_to_itself(exported: Exported, tmp_path: Path) -> None:
    single = exported("gpt2", "step")
    adopted = adopt_file(single.model_path, tmp_path / "adopted")
    known = derive(single, "int8", tmp_path / "known").errors
    for name, found in derive(adopted, "int8", tmp_path / "int8").errors.items():
        assert 0.2 * known[name] < found < 5 * known[name]  # on other inputs


def test_a_graph_that_nothing_can_run_says_so(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(Unevaluable):
        evaluate(tmp_path / "broken.onnx", {})
