"""`isorun export FILE.onnx`: a file that is there becomes an artifact, its weights with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from isorun.export.adoption import adopt_file
from isorun.export.artifact import ArtifactError

from ..conftest import Exported


def _with_external_weight(
    folder: Path, location: str, length: int = 64, offset: str = "0", operator: str = "MatMul"
) -> Path:
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    weight.raw_data = b""
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", str(length))):
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node(operator, ["x", "w"], ["y"])], "g", [x], [y], [weight])
    file = folder / "theirs.onnx"
    file.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString())
    return file


def test_an_exported_graph_is_adopted_with_its_signature(exported: Exported, tmp_path: Path) -> None:
    ours = exported("gpt2", "step")
    artifact = adopt_file(ours.model_path, tmp_path / "out")
    assert (artifact.phase, artifact.opset, artifact.ops) == ("step", 23, ours.ops)
    assert artifact.source.name == str(ours.model_path.resolve())
    assert [spec.shape for spec in artifact.signature().inputs] == [spec.shape for spec in ours.signature().inputs]
    assert artifact.sha256 == ours.sha256


def test_weights_beside_the_file_come_along(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(np.ones(16, np.float32).tobytes())
    artifact = adopt_file(_with_external_weight(tmp_path, "weights.bin"), tmp_path / "out")
    assert set(artifact.files) == {"theirs.onnx", "weights.bin"}
    assert numpy_helper.to_array(onnx.load(artifact.model_path).graph.initializer[0]).sum() == 16


@pytest.mark.parametrize(
    ("location", "length", "reason"),
    [
        ("../secret.bin", 64, "outside the model's folder"),
        ("/etc/hostname", 64, "outside the model's folder"),
        ("absent.bin", 64, "is not there"),
        ("short.bin", 64, "end at byte 64 of 'short.bin', which is shorter"),
        ("", 64, "outside the model's folder"),
    ],
)
def test_weights_that_lie_elsewhere_are_refused(tmp_path: Path, location: str, length: int, reason: str) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"x" * 64)
    (inside / "short.bin").write_bytes(b"x" * 10)
    with pytest.raises(ArtifactError, match=reason):
        adopt_file(_with_external_weight(inside, location, length), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("location", "offset", "reason"),
    [
        ("weights.bin", "some", "offset or length is not a number"),
        ("weights.bin", "-64", "offset -64"),
        ("a\0b", "0", "a link out of the model's folder"),
        ("x" * 5000, "0", "is not there"),
        ("C:\\weights.bin", "0", "outside the model's folder"),
    ],
)
def test_what_validation_refuses_is_not_adopted(tmp_path: Path, location: str, offset: str, reason: str) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\0" * 64)
    with pytest.raises(ArtifactError, match=reason):
        adopt_file(_with_external_weight(tmp_path, location, offset=offset), tmp_path / "out")


def test_what_the_checker_refuses_is_one_message_and_no_folder(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\0" * 64)
    (tmp_path / "empty.onnx").write_bytes(b"")
    for file in (_with_external_weight(tmp_path, "weights.bin", operator="NoSuchOp"), tmp_path / "empty.onnx"):
        with pytest.raises(ArtifactError, match="the ONNX checker refuses it"):
            adopt_file(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"\xff" * 100)
    with pytest.raises(ArtifactError, match="not an ONNX model"):
        adopt_file(tmp_path / "x.onnx", tmp_path / "out")
