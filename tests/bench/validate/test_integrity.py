"""Integrity: what is missing, cut, outside or impossible is refused before anything runs; what is sound passes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from isorun.bench.validate import integrity, structure
from isorun.bench.validate.candidate import open_candidate
from isorun.export.artifact import ExportedModel

from .graphs import LocalChecker, candidate, linear, model, node, refusal, save, statuses

WIDTH = 8
BYTES = 4 * WIDTH * WIDTH


def external(folder: Path, location: str = "w.bin", **declared: str) -> Path:
    """y = x·w with w in another file, of which the test declares what it likes."""
    proto = linear(WIDTH)
    weight = proto.graph.initializer[0]
    (folder / "w.bin").write_bytes(weight.raw_data)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **declared}.items():
        weight.external_data.add(key=key, value=value)
    return save(proto, folder)


@pytest.mark.parametrize("declared", [{}, {"length": str(BYTES)}, {"offset": "0", "length": str(BYTES)}])
def test_sound_external_data_passes(tmp_path: Path, declared: dict[str, str]) -> None:
    findings = integrity.check(open_candidate(external(tmp_path, **declared)))
    assert statuses(findings) == ["pass"]
    assert f"{BYTES} bytes in w.bin" in findings[0].says


def test_external_data_in_a_folder_below_passes(tmp_path: Path) -> None:
    path = external(tmp_path, "weights/w.bin")
    (tmp_path / "weights").mkdir()
    (tmp_path / "w.bin").rename(tmp_path / "weights" / "w.bin")
    assert statuses(integrity.check(open_candidate(path))) == ["pass"]


@pytest.mark.parametrize(
    "location",
    [
        "../w.bin",
        "a/../../w.bin",
        "a/../w.bin",
        "/etc/passwd",
        "C:\\w.bin",
        "..\\w.bin",
        "\\\\server\\w.bin",
        "",
        "w\0.bin",
    ],
)
def test_a_location_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    says = refusal(external(tmp_path, location))
    assert "'w'" in says
    assert "folder" in says


def test_a_link_out_of_the_folder_is_refused_and_one_within_is_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    path = external(home)
    (home / "w.bin").rename(tmp_path / "outside.bin")
    (home / "w.bin").symlink_to(tmp_path / "outside.bin")
    assert "link out of" in refusal(path)
    (home / "w.bin").unlink()
    (tmp_path / "outside.bin").rename(home / "inside.bin")
    (home / "w.bin").symlink_to("inside.bin")
    assert statuses(integrity.check(open_candidate(path))) == ["pass"]


def test_the_links_of_a_repository_cache_pass(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    path = external(snapshot)
    (tmp_path / "blobs").mkdir()
    (snapshot / "w.bin").rename(tmp_path / "blobs" / "123")
    (snapshot / "w.bin").symlink_to("../../blobs/123")
    assert statuses(integrity.check(open_candidate(path))) == ["pass"]


def test_missing_and_cut_files_name_the_file_and_the_bytes(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "w.bin").write_bytes(bytes(100))
    says = refusal(path)
    assert "w.bin has 100 bytes" in says
    assert str(BYTES) in says
    (tmp_path / "w.bin").unlink()
    assert "w.bin is missing" in refusal(path)
    assert str(BYTES) in refusal(path)


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"length": "100"}, "100 are declared"),
        ({"offset": "8", "length": str(BYTES)}, "cut off"),
        ({"offset": "8"}, "cut off"),
        ({"offset": "-8"}, "offset -8"),
        ({"length": "-1"}, "length -1"),
        ({"offset": "zero"}, "not a number"),
        ({"offset": "9" * 30}, "cut off"),
    ],
)
def test_impossible_ranges(tmp_path: Path, declared: dict[str, str], says: str) -> None:
    assert says in refusal(external(tmp_path, **declared))


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    assert "is missing" in refusal(external(tmp_path, "w" * 3000))


def test_external_data_in_subgraphs_functions_and_attributes_is_held_to_the_same_rules(tmp_path: Path) -> None:
    outside = TensorProto(name="hidden", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="../secret")
    for where in ("subgraph", "function", "attribute", "sparse"):
        proto = linear(WIDTH)
        if where == "subgraph":
            branch = proto.graph.node.add(op_type="If").attribute.add(
                name="then_branch", type=onnx.AttributeProto.GRAPH
            )
            branch.g.initializer.add().CopyFrom(outside)
        elif where == "function":
            proto.functions.add(name="f").node.add().attribute.add(name="value").t.CopyFrom(outside)
        elif where == "attribute":
            proto.graph.node.add(op_type="Constant").attribute.add(name="value").t.CopyFrom(outside)
        else:
            proto.graph.sparse_initializer.add().values.CopyFrom(outside)
        assert "'../secret'" in refusal(save(proto, tmp_path)), where


def _set(**fields: Any) -> TensorProto:
    return TensorProto(name="w", data_type=TensorProto.FLOAT, **fields)


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (_set(dims=[-1, 4], raw_data=bytes(16)), r"shape [-1, 4]"),
        (_set(dims=[2, 2], raw_data=bytes(15)), "needs 16 bytes and has 15"),
        (_set(dims=[2**40, 2**40], raw_data=bytes(4)), "needs"),
        (_set(dims=[2, 2], float_data=[1.0]), "needs 4 elements in float_data and has 1"),
        (_set(dims=[2**62]), "needs"),
        (_set(dims=[1], int32_data=[1]), "needs 1 elements in float_data and has 0"),
        (_set(dims=[1], float_data=[1.0], segment=TensorProto.Segment(begin=0, end=1)), "segment"),
        (TensorProto(name="w", data_type=99, dims=[1]), "unknown type 99"),
        (TensorProto(name="w", dims=[1]), "unknown type 0"),
    ],
)
def test_impossible_tensors(tmp_path: Path, tensor: TensorProto, says: str) -> None:
    proto = linear(WIDTH)
    proto.graph.initializer[0].CopyFrom(tensor)
    text = refusal(save(proto, tmp_path))
    assert says in text
    assert "'w'" in text


@pytest.mark.parametrize("dtype", [*"fdeb?BhHiIlLFD", "U3"])
@pytest.mark.parametrize("raw", [True, False])
def test_every_type_of_tensor_passes_raw_and_not(tmp_path: Path, dtype: str, raw: bool) -> None:
    proto = linear(WIDTH)
    values = np.array([["a", "b", "c"]]) if dtype == "U3" else np.ones((1, 3), dtype)
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(object) if dtype == "U3" else values.dtype)
    if raw and dtype != "U3":
        proto.graph.initializer.add().CopyFrom(onnx.numpy_helper.from_array(values, "extra"))
    else:
        proto.graph.initializer.add().CopyFrom(
            onnx.helper.make_tensor("extra", code, [1, 3], values.flatten().tolist())
        )
    assert statuses(integrity.check(candidate(proto, tmp_path))) == ["pass"]


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_packed_and_half_tensors_pass(tmp_path: Path, kind: int) -> None:
    proto = linear(WIDTH)
    proto.graph.initializer.add().CopyFrom(onnx.helper.make_tensor("extra", kind, [3], [1, 2, 3]))
    assert statuses(integrity.check(candidate(proto, tmp_path))) == ["pass"]


def test_two_and_a_half_gib_of_external_data_take_little_memory(tmp_path: Path) -> None:
    rows, width = 5 * 2**18, 512
    proto = model(
        [node("Gather", "table ids", "y")],
        {"ids": ("int64", ["n"])},
        {"y": ("float32", ["n", width])},
        {"table": np.zeros((1, 1), np.float32)},
    )
    table = proto.graph.initializer[0]
    table.Clear()
    table.name, table.data_type, table.data_location = "table", TensorProto.FLOAT, TensorProto.EXTERNAL
    table.dims.extend([rows, width])
    table.external_data.add(key="location", value="table.bin")
    with (tmp_path / "table.bin").open("wb") as stream:
        stream.truncate(4 * rows * width)
    path = save(proto, tmp_path)
    tracemalloc.start()
    opened = open_candidate(path)
    findings = [*integrity.check(opened), *structure.check(opened, LocalChecker())]  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "fail" not in statuses(findings)
    assert opened.signature.inputs[0].limit == rows
    assert peak < 2**26


def test_an_artifact_as_exported_passes(exported: Any) -> None:
    artifact: ExportedModel = exported("gpt2", "step")
    assert statuses(integrity.check(open_candidate(artifact.folder))) == ["pass"]
