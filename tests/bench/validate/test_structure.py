"""Structure: each defect is found in the faulty graph, and the right one beside it passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from isorun.bench.client import WorkerDied
from isorun.bench.validate import structure
from isorun.bench.validate.candidate import Candidate
from isorun.bench.validate.finding import Finding, Refusal

from .graphs import LocalChecker, candidate, linear, model, node, says, statuses

X = {"x": ("float32", ["n", 8])}
Y = {"y": ("float32", ["n", 8])}
RANDOM = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)


def check(proto: onnx.ModelProto, folder: Path) -> list[Finding]:
    given: Any = LocalChecker()
    return structure.check(candidate(proto, folder), given)


def dropout(mode: bool | None, *, constant: bool = False) -> onnx.ModelProto:
    constants = {"ratio": np.array(0.5, np.float32)}
    nodes = [node("Dropout", "x ratio" if mode is None else "x ratio mode", "y")]
    if mode is not None and constant:
        nodes.insert(0, node("Constant", "", "mode", value=numpy_helper.from_array(np.array(mode))))
    elif mode is not None:
        constants["mode"] = np.array(mode)
    return model(nodes, X, Y, constants)


@pytest.mark.parametrize("constant", [True, False])
def test_live_dropout(tmp_path: Path, constant: bool) -> None:
    text = says(check(dropout(True, constant=constant), tmp_path))
    assert "Dropout 'y' is live" in text
    assert "eval()" in text


@pytest.mark.parametrize("proto", [dropout(None), dropout(False), dropout(False, constant=True)])
def test_dropout_that_is_off(tmp_path: Path, proto: onnx.ModelProto) -> None:
    assert "fail" not in statuses(check(proto, tmp_path))


def test_live_dropout_in_a_local_function(tmp_path: Path) -> None:
    proto = dropout(True)
    body = [node("Constant", "", "m", value=numpy_helper.from_array(np.array(True))), node("Dropout", "a r m", "b")]
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    proto.functions.append(helper.make_function("local", "Drop", ["a", "r"], ["b"], body, versions[:1]))
    proto.opset_import.append(versions[1])
    del proto.graph.node[:]
    proto.graph.node.append(helper.make_node("Drop", ["x", "ratio"], ["y"], domain="local"))
    assert "is live" in says(check(proto, tmp_path))


def tied(second: Any, *, first: Any = RANDOM) -> onnx.ModelProto:
    nodes = [node("MatMul", "x a", "h"), node("Gemm" if second.shape == first.shape else "MatMul", "h b", "y")]
    if second.shape == first.shape:
        nodes[1].attribute.append(helper.make_attribute("transB", 1))
    return model(nodes, X, Y, {"a": first, "b": second})


@pytest.mark.parametrize("second", [RANDOM, np.ascontiguousarray(RANDOM.T)])
def test_a_matrix_stored_twice_as_it_is_or_transposed(tmp_path: Path, second: Any) -> None:
    findings = check(tied(second), tmp_path)
    text = says(findings)
    assert "'a' and 'b'" in text
    assert "100%" in text
    data = next(finding.data for finding in findings if finding.status == "fail")
    assert data["doubled_bytes"] == RANDOM.nbytes


def test_a_matrix_stored_twice_in_another_file(tmp_path: Path) -> None:
    proto = tied(np.ascontiguousarray(RANDOM.T))
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
    proto = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    assert proto.graph.initializer[0].data_location == TensorProto.EXTERNAL
    assert "stored twice" in says(check(proto, tmp_path))


@pytest.mark.parametrize(
    "pair",
    [
        (RANDOM, RANDOM.T + np.float32(1e-6)),
        (np.zeros((8, 16), np.float32), np.zeros((16, 8), np.float32)),
        (np.ones((8, 16), np.float32), np.ones((16, 8), np.float32)),
    ],
    ids=["one is a little off", "zeros", "ones"],
)
def test_no_false_alarm_over_equal_weights(tmp_path: Path, pair: tuple[Any, Any]) -> None:
    assert "fail" not in statuses(check(tied(pair[1], first=pair[0]), tmp_path))


def test_equal_masks_and_small_doubles_are_no_tied_weights(tmp_path: Path) -> None:
    proto = tied(RANDOM.T + 1)
    for name in ("mask_a", "mask_b"):
        proto.graph.initializer.append(numpy_helper.from_array(np.tri(64, dtype=bool), name))
    for name in ("small_a", "small_b"):
        proto.graph.initializer.append(numpy_helper.from_array(np.arange(8, dtype=np.float32), name))
    assert "fail" not in statuses(check(proto, tmp_path))


def softmax(opset: int, axis: int | None, op: str = "Softmax") -> onnx.ModelProto:
    attributes = {} if axis is None else {"axis": axis}
    shape = ("float32", [2, 3, 4])
    return model([node(op, "x", "y", **attributes)], {"x": shape}, {"y": shape}, opset=opset)


@pytest.mark.parametrize(("opset", "axis"), [(11, 1), (12, None), (11, 0), (12, -2)])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_of_old_opsets_that_runtimes_read_in_two_ways(
    tmp_path: Path, opset: int, axis: int | None, op: str
) -> None:
    text = says(check(softmax(opset, axis, op), tmp_path))
    assert f"opset {opset}" in text
    assert "version_converter" in text


@pytest.mark.parametrize(("opset", "axis"), [(11, 2), (11, -1), (13, 1), (18, 0), (18, None)])
def test_softmax_that_every_runtime_reads_alike(tmp_path: Path, opset: int, axis: int | None) -> None:
    assert "fail" not in statuses(check(softmax(opset, axis), tmp_path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda proto: proto.graph.node[0].input.__setitem__(0, "nowhere"), "nowhere"),
        (lambda proto: setattr(proto.graph.node[0], "op_type", "MatMull"), "MatMull"),
        (lambda proto: setattr(proto.graph.output[0].type.tensor_type.shape.dim[2], "dim_value", 9), "9"),
        (lambda proto: setattr(proto.graph.output[0].type.tensor_type, "elem_type", TensorProto.INT64), "elem type"),
    ],
    ids=["dangling", "unknown operator", "declared size", "declared type"],
)
def test_what_the_checker_refuses(tmp_path: Path, change: Any, words: str) -> None:
    proto = linear()
    assert statuses(check(proto, tmp_path)) == ["pass"]
    change(proto)
    text = says(check(proto, tmp_path))
    assert "the ONNX checker refuses the model" in text
    assert words.lower() in text.lower()


def test_a_checker_that_dies_is_a_refusal(tmp_path: Path) -> None:
    class Dying:
        def refusal(self, file: Path) -> str | None:
            raise WorkerDied("killed by SIGSEGV")

    given: Candidate = candidate(linear(), tmp_path)
    dying: Any = Dying()
    with pytest.raises(Refusal, match=r"does not survive.*SIGSEGV"):
        structure.check(given, dying)


def test_custom_domains_and_missing_fusions_are_notes(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x a", "s"), node("Softmax", "s", "p"), node("MatMul", "p b", "y")]
    proto = model(nodes, X, Y, {"a": RANDOM, "b": RANDOM.T + 1})
    assert "not fused" in says(check(proto, tmp_path), "note")
    proto.graph.node[1].domain = "com.example"
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    findings = check(proto, tmp_path)
    assert "com.example" in says(findings, "note")
    assert "fail" not in statuses(findings)
