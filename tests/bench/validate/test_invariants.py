"""Invariants: equal runs, no NaN, and rows that do not see each other, unless they are meant to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from isorun.bench.validate import invariants
from isorun.bench.validate.finding import Finding

from .graphs import Shape, candidate, linear, local, model, node, says, statuses

RNG = np.random.default_rng(0)
W = RNG.standard_normal((8, 8)).astype(np.float32)
SHAPE: Shape = ["batch", 8]


def check(proto: onnx.ModelProto, folder: Path, x: Any) -> list[Finding]:
    given = candidate(proto, folder)
    return invariants.check(given, local(given), "ort-cpu", {"x": x})


def graph(*nodes: onnx.NodeProto, shape: Shape = SHAPE, **constants: Any) -> onnx.ModelProto:
    return model(nodes, {"x": ("float32", shape)}, {"y": ("float32", shape)}, constants)


def rows(scale_of_last: float = 1.0) -> Any:
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    x[-1] *= np.float32(scale_of_last)
    return x


def dynamic_int8() -> onnx.ModelProto:
    """x·w with one scale for the whole of x, as dynamic quantisation makes it."""
    scale = np.abs(W).max() / 127
    return graph(
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z", "i"),
        node("Cast", "i", "f", to=1),
        node("Mul", "s ws", "c"),
        node("Mul", "f c", "y"),
        w=np.round(W / scale).astype(np.int8),
        ws=np.float32(scale),
    )


def test_a_plain_graph_passes(tmp_path: Path) -> None:
    findings = check(linear(), tmp_path, RNG.standard_normal((3, 5, 8)).astype(np.float32))
    assert statuses(findings) == ["pass", "pass"]
    assert "each of 3 rows" in findings[1].says


def test_a_random_operator_is_no_function(tmp_path: Path) -> None:
    proto = graph(node("RandomNormalLike", "x", "r"), node("Add", "x r", "y"))
    text = says(check(proto, tmp_path, rows()))
    assert "two runs on the same input differ" in text
    assert "eval()" in text


def test_random_shapes_and_booleans_are_differences_too() -> None:
    first = {"y": np.zeros(3), "b": np.array([True, False])}
    assert invariants.deterministic(first, dict(first)).status == "pass"
    assert invariants.deterministic(first, {**first, "y": np.zeros(4)}).status == "fail"
    assert invariants.deterministic(first, {**first, "b": np.array([True, True])}).status == "fail"
    nan = {"y": np.array([np.nan, 1.0])}
    assert invariants.deterministic(nan, nan).status == "pass"


def test_nan_is_a_failure(tmp_path: Path) -> None:
    proto = graph(node("Sqrt", "x", "y"))
    assert "y has" in says(check(proto, tmp_path, -np.ones((2, 8), np.float32)))
    assert "fail" not in statuses(check(proto, tmp_path, np.ones((2, 8), np.float32)))


def test_dynamic_int8_depends_on_its_batch_and_says_so(tmp_path: Path) -> None:
    text = says(check(dynamic_int8(), tmp_path, rows(20.0)))
    assert "a row depends on its batch" in text
    assert "quantise per row" in text


def test_int8_with_a_fixed_scale_does_not(tmp_path: Path) -> None:
    proto = graph(
        node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"), node("MatMul", "d w", "y"),
        w=W, s=np.float32(0.5), z=np.int8(0),
    )  # fmt: skip
    assert "fail" not in statuses(check(proto, tmp_path, rows(20.0)))


@pytest.mark.parametrize(
    "nodes",
    [
        [node("ReduceMean", "x axis", "m", keepdims=1), node("Sub", "x m", "y")],
        [node("Softmax", "x", "y", axis=0)],
        [node("CumSum", "x zero", "y")],
    ],
    ids=["mean", "softmax", "cumulative sum"],
)
def test_no_false_alarm_where_rows_are_meant_to_see_each_other(tmp_path: Path, nodes: list[onnx.NodeProto]) -> None:
    proto = graph(*nodes, shape=["sequence", 8])
    constants = {"axis": np.array([0]), "zero": np.array(0)}
    used = {name for one in nodes for name in one.input}
    for name, array in constants.items():
        if name in used:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    assert "fail" not in statuses(check(proto, tmp_path, rows()))


def test_repeatable_needs_no_inputs(tmp_path: Path) -> None:
    for nodes, wanted in (
        ([node("RandomUniformLike", "x", "r"), node("Add", "x r", "y")], ["fail"]),
        ([node("Neg", "x", "y")], ["pass"]),
        ([node("Log", "x", "y")], ["pass"]),  # NaN of the validator's own making
    ):
        given = candidate(graph(*nodes), tmp_path)
        assert statuses(invariants.repeatable(given, local(given), "ort-cpu")) == wanted
