"""Finding and reading a model: files, folders and manifests that are none are refused, with what is wrong in them."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from isorun.bench.validate import integrity
from isorun.bench.validate.candidate import open_candidate

from .graphs import linear, refusal, save, statuses

WIDTH = 8


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"this is a text file, not a model\n" * 50, "not an ONNX model"),
        (linear(WIDTH).SerializeToString()[:-100], "not an ONNX model, or cut off"),
        (onnx.ModelProto(ir_version=9).SerializeToString(), "no graph"),
        (linear(WIDTH).SerializeToString().replace(b"MatMul", b"Mat\xff\xfel"), "UTF-8"),
    ],
)
def test_files_that_are_no_models(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    text = refusal(path)
    assert says in text
    assert "model.onnx" in text


def test_paths_that_are_no_models(tmp_path: Path) -> None:
    assert "without artifact.json" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "absent.onnx")
    huge = tmp_path / "huge.onnx"
    with huge.open("wb") as stream:
        stream.truncate(2**31)
    assert "2 GiB" in refusal(huge)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("model", "../model.onnx", "not the name of a file"),
        ("model", "/etc/passwd", "not the name of a file"),
        ("model", 5, "model is 5"),
        ("model", "absent.onnx", "no such file"),
        ("dtype", "int7", "'int7' is none of"),
        ("limits", [], "limits is"),
        ("limits", {"input_ids": -1}, "not all positive"),
        ("source", "gpt2", "not a manifest"),
        ("source", {"kind": "preset", "name": ["gpt2"]}, "not all text"),
        ("schema", "one", "not a manifest"),
    ],
)
def test_damaged_manifests(tmp_path: Path, field: str, value: object, says: str) -> None:
    path = save(linear(WIDTH), tmp_path)
    content = {
        "schema": 1, "phase": "forward", "dtype": "fp32", "opset": 18, "source": {"kind": "file", "name": str(path)},
        "ops": {}, "files": {}, "limits": {}, "versions": {}, "seconds": 0.0,
    }  # fmt: skip
    (tmp_path / "artifact.json").write_text(json.dumps(content))
    assert statuses(integrity.check(open_candidate(tmp_path))) == ["pass"]
    (tmp_path / "artifact.json").write_text(json.dumps({**content, field: value}))
    assert says in refusal(tmp_path)


def test_deep_json_in_a_manifest_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "artifact.json").write_text("[" * 200_000)
    assert "not a manifest" in refusal(tmp_path)


@pytest.mark.parametrize("kind", ["sequence_type", "map_type", "optional_type", "sparse_tensor_type", None])
def test_inputs_that_are_no_tensors_are_refused_by_name(tmp_path: Path, kind: str | None) -> None:
    proto = linear(WIDTH)
    declared = proto.graph.input[0].type
    declared.Clear()
    if kind:
        getattr(declared, kind).SetInParent()
    assert "'x' is declared as" in refusal(save(proto, tmp_path))
