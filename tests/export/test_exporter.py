"""The exported graphs of the six presets: the same function as their sources, with every axis free."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from isorun.bench.truth import distance
from isorun.export.artifact import ArtifactError, ExportedModel
from isorun.export.exporter import export
from isorun.export.outputs import outputs64
from isorun.export.source import Source
from isorun.models.config import ConfigError
from isorun.models.phases import signature
from isorun.models.presets import PRESETS
from isorun.runtimes.reference import Float64Graph

from ..conftest import GRAPHS, Exported

# n = 33 is two windows and one token for mistral-7b at tiny (window 16); 2 is below every other trace.
SIZES = [
    (n, batch, padding)
    for n in (1, 2, 7, 33)
    for batch in (1, 3)
    for padding in ("none", "left")
    if batch > 1 or padding == "none"
]


@pytest.mark.parametrize(("name", "phase"), GRAPHS)
def test_graph_and_source_are_one_function_in_float64(exported: Exported, name: str, phase: str) -> None:
    artifact = exported(name, phase)
    graph, module, declared = Float64Graph(artifact.model_path), artifact.module(), artifact.signature()
    pasts = (0, 1, 20) if phase == "step" else (0,)
    for n, batch, padding in SIZES:
        for past in pasts:
            sizes = {"batch": batch, "sequence": n, "past": past, "source": n + 2}
            feeds = declared.feeds(sizes, seed=n, padding=padding)
            found = graph.run(feeds)
            for output, truth in outputs64(module, feeds).items():
                assert distance(found[output], truth) <= 1e-9, (sizes, padding, output)


@pytest.mark.parametrize(("name", "phase"), GRAPHS)
def test_declared_names_and_axes_are_those_of_the_configuration(exported: Exported, name: str, phase: str) -> None:
    assert exported(name, phase).signature() == signature(PRESETS[name].at("tiny"), phase)


def test_names_are_those_of_hugging_face_exports(exported: Exported) -> None:
    declared = exported("llama3-8b", "step").signature()
    assert [spec.name for spec in declared.inputs][:5] == [
        "input_ids", "attention_mask", "position_ids", "past_key_values.0.key", "past_key_values.0.value",
    ]  # fmt: skip
    assert [spec.name for spec in declared.outputs][:3] == ["logits", "present.0.key", "present.0.value"]
    assert declared.outputs[1].shape == ("batch", 2, "past + sequence", 8)


def test_attention_and_rms_normalization_stay_whole(exported: Exported) -> None:
    ops = exported("llama3-8b", "forward").ops
    assert ops["Attention"] == 2
    assert ops["RMSNormalization"] == 5


def test_manifest_describes_the_files_that_are_there(exported: Exported) -> None:
    artifact = exported("gpt2", "forward")
    assert dataclasses.replace(ExportedModel.open(artifact.folder), folder=artifact.folder) == artifact
    content = json.loads((artifact.folder / "artifact.json").read_text())
    expected = {"kind": "preset", "name": "gpt2", "size": "tiny", "seed": 0, "last_logits": False}
    assert content["source"] == expected
    assert set(content["files"]) == {"model.onnx"}
    graph = onnx.load(artifact.model_path).graph
    assert sum(content["ops"].values()) == len(graph.node)
    assert content["limits"] == {"input_ids": 256, "attention_mask": 2, "position_ids": 128}


def test_the_seed_decides_the_weights(exported: Exported, tmp_path: Path) -> None:
    other = export(Source("preset", "lstm", "tiny", seed=1), "forward", tmp_path / "other")
    first = exported("lstm", "forward")
    feeds = first.signature().feeds({"batch": 1, "sequence": 4})
    assert not np.allclose(outputs64(first.module(), feeds)["logits"], outputs64(other.module(), feeds)["logits"])


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(ArtifactError, match="not empty"):
        export(Source("preset", "lstm", "tiny"), "forward", tmp_path)
    assert (tmp_path / "note.txt").read_text() == "mine"


def test_a_phase_that_the_topology_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no phase 'step'; it has forward"):
        export(Source("preset", "bert-base", "tiny"), "step", tmp_path / "bert")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "no artifact.json"),
        ("{", "not a manifest"),
        ('{"schema": 99}', "schema 99 is newer"),
        ("[]", "not a man"),
    ],
)
def test_a_folder_without_a_readable_manifest_is_refused(tmp_path: Path, text: str | None, reason: str) -> None:
    if text is not None:
        (tmp_path / "artifact.json").write_text(text)
    with pytest.raises(ArtifactError, match=reason):
        ExportedModel.open(tmp_path)
