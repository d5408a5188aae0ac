"""What a graph computes and moves: against the models' own count, by hand, and against what ONNX Runtime gives out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from isorun.bench.graph_cost import GraphCost, polynomial
from isorun.bench.graph_shapes import Tensor, UnknownShape
from isorun.models.cost import flops
from isorun.models.presets import PRESETS

from ..conftest import GRAPHS, Exported

FLOAT = TensorProto.FLOAT
Nodes = Sequence[onnx.NodeProto]


def _graph(
    nodes: Nodes, inputs: Mapping[str, Sequence[Any]], outputs: Sequence[str], **weights: np.ndarray
) -> onnx.GraphProto:
    given = [helper.make_tensor_value_info(name, FLOAT, list(shape)) for name, shape in inputs.items()]
    out = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    return helper.make_graph(list(nodes), "g", given, out, stored)


def _cost(folder: Path, graph: onnx.GraphProto) -> GraphCost:
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return GraphCost(path)


def _sizes(phase: str, n: int, batch: int = 2) -> dict[str, int]:
    step = phase == "step"
    return {"batch": batch, "sequence": 1 if step else n, "past": n if step else 0, "source": n}


@pytest.mark.parametrize(("name", "phase"), GRAPHS)
def test_the_graph_computes_what_the_model_says(exported: Exported, name: str, phase: str) -> None:
    graph = GraphCost(exported(name, phase).model_path)
    config = PRESETS[name].at("tiny")
    for n in (1, 5, 16, 17, 33, 500):
        for batch in (1, 3):
            sizes = _sizes(phase, n, batch)
            assert graph.at(sizes).flops == flops(config, phase, sizes), sizes


def test_the_graph_proves_that_the_cache_is_used(exported: Exported) -> None:
    """A step over n past tokens: 4 · layers · heads · size operations for each, and nothing squared."""
    config = PRESETS["gpt2"].at("tiny")
    graph = GraphCost(exported("gpt2", "step").model_path)
    law = polynomial({n: graph.at(_sizes("step", n)).flops for n in (8, 100, 333, 900)})
    assert law is not None
    assert law[1:] == (2 * 4 * config.layers * config.heads * config.head_dim, 0)
    moved = polynomial({n: graph.at(_sizes("step", n)).bytes for n in (8, 100, 333, 900)})
    assert moved is not None
    assert moved[2] == 0
    assert moved[1] >= 2 * 4 * config.layers * 2 * config.dim  # keys and values of a token, read at least once


def test_the_graph_proves_that_the_window_is_kept(exported: Exported) -> None:
    graphs = {name: GraphCost(exported(name, "forward").model_path) for name in ("mistral-7b", "llama3-8b")}
    lengths = [16 * count for count in (8, 16, 32, 48, 64)]  # whole windows
    laws = {name: polynomial({n: g.at(_sizes("forward", n)).flops for n in lengths}) for name, g in graphs.items()}
    window, full = laws["mistral-7b"], laws["llama3-8b"]
    assert window is not None
    assert full is not None
    assert window[2] == 0
    assert full[2] > 0


def test_a_law_that_is_no_parabola_is_none() -> None:
    assert polynomial({n: 3 + 5 * n + 7 * n * n for n in (1, 10, 50, 200)}) == (3, 5, 7)
    assert polynomial({n: n**3 for n in (1, 10, 50, 200)}) is None
    with pytest.raises(ValueError, match="at least 4 lengths"):
        polynomial({1: 1, 2: 2, 3: 3})


def test_bytes_and_memory_by_hand(tmp_path: Path) -> None:
    """x (n, 8) · W (8, 16) → relu → reshape → · V (16, 4): in float32."""
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Reshape", ["b", "shape"], ["c"]),
        helper.make_node("MatMul", ["c", "V"], ["y"]),
    ]
    weights = {"W": np.ones((8, 16), np.float32), "V": np.ones((16, 4), np.float32), "shape": np.array([1, -1, 16])}
    found = _cost(tmp_path, _graph(nodes, {"x": ["n", 8]}, ["y"], **weights)).at({"n": 10})
    assert found.flops == 2 * 10 * 8 * 16 + 2 * 10 * 16 * 4
    assert found.by_op["Relu"] == (0, 4 * 2 * 160)
    assert "Reshape" not in found.by_op
    assert found.bytes == 4 * ((80 + 128 + 160) + 2 * 160 + (160 + 64 + 40))
    assert found.weights == 4 * (128 + 64) + 8 * 3
    assert found.activations == 4 * (160 + 160)  # a and b together; then b, which c is a view of, and y
    assert found.cache == 0


def test_of_a_table_only_the_rows_are_read(tmp_path: Path) -> None:
    table = np.ones((1000, 8), np.float32)
    ids = np.array([3, 7, 7])
    nodes = [helper.make_node("Gather", ["table", "ids"], ["a"]), helper.make_node("Add", ["a", "x"], ["y"])]
    found = _cost(tmp_path, _graph(nodes, {"x": ["n", 8]}, ["y"], table=table, ids=ids)).at({"n": 3})
    assert found.by_op["Gather"] == (0, 2 * 4 * 24)


def test_what_is_written_into_a_cache_does_not_move_the_cache(tmp_path: Path) -> None:
    nodes = [helper.make_node("ScatterElements", ["past", "place", "x"], ["y"], axis=0)]
    place = np.full((1, 8), 5)
    found = _cost(tmp_path, _graph(nodes, {"past": ["n", 8], "x": [1, 8]}, ["y"], place=place)).at({"n": 1000})
    assert found.bytes == 2 * (8 * 8 + 4 * 8)


def _matmul(name: str) -> onnx.NodeProto:
    return helper.make_node("MatMul", [name, "w"], [f"{name}·w"])


def test_a_sub_graph_counts_once_and_only_the_branch_that_runs(tmp_path: Path) -> None:
    w = np.ones((6, 6), np.float32)
    branches = {
        "then_branch": helper.make_graph(
            [_matmul("x")], "then", [], [helper.make_tensor_value_info("x·w", FLOAT, None)]
        ),
        "else_branch": helper.make_graph(
            [helper.make_node("Relu", ["x"], ["r"])], "else", [], [helper.make_tensor_value_info("r", FLOAT, None)]
        ),
    }
    for chosen, expected in ((True, 2 * 5 * 6 * 6), (False, 0)):
        graph = _graph(
            [helper.make_node("If", ["which"], ["y"], **branches)], {"x": ["n", 6]}, ["y"], w=w, which=np.array(chosen)
        )
        found = _cost(tmp_path, graph).at({"n": 5})
        assert found.flops == expected
        assert "If" not in found.by_op


def test_a_scan_counts_as_often_as_it_runs(tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("MatMul", ["part", "w"], ["p"]), helper.make_node("Add", ["state", "p"], ["next"])],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, [1, 6]) for name in ("state", "part")],
        [helper.make_tensor_value_info(name, FLOAT, [1, 6]) for name in ("next", "p")],
    )
    scan = helper.make_node("Scan", ["start", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    weights = {"w": np.ones((6, 6), np.float32), "start": np.zeros((1, 6), np.float32)}
    found = _cost(tmp_path, _graph([scan], {"x": ["n", 1, 6]}, ["last", "y"], **weights)).at({"n": 7})
    assert found.flops == 7 * 2 * 36
    assert found.by_op["Add"] == (0, 7 * 3 * 4 * 6)


def test_a_shape_that_depends_on_data_is_said(tmp_path: Path) -> None:
    graph = _graph([helper.make_node("NonZero", ["x"], ["y"], name="here")], {"x": ["n", 6]}, ["y"])
    with pytest.raises(UnknownShape, match=r"NonZero \(here\)"):
        _cost(tmp_path, graph).at({"n": 3})
    unknown = helper.make_node("Inverse", ["x"], ["y"], domain="com.microsoft", name="there")
    with pytest.raises(UnknownShape, match=r"Inverse \(there\): no shape function"):
        _cost(tmp_path, _graph([unknown], {"x": [6, 6]}, ["y"])).at({})


CONTRIB: list[tuple[str, dict[str, tuple[int, ...]], int, dict[str, Any], int]] = [
    ("FusedMatMul", {"a": (2, 5, 3), "b": (2, 7, 3)}, 1, {"transB": 1}, 2 * 2 * 5 * 7 * 3),
    ("FusedMatMul", {"a": (3, 5), "b": (3, 7)}, 1, {"transA": 1}, 2 * 5 * 7 * 3),
    ("SkipLayerNormalization", {"a": (2, 5, 8), "b": (2, 5, 8), "g": (8,)}, 1, {}, 0),
    ("FastGelu", {"a": (2, 5, 8)}, 1, {}, 0),
    (
        "MultiHeadAttention",
        {"q": (2, 5, 8), "k": (2, 9, 8), "v": (2, 9, 12)},
        1,
        {"num_heads": 4},
        2 * 2 * 4 * 5 * 9 * (2 + 3),
    ),
]


@pytest.mark.parametrize(("op", "inputs", "outputs", "attributes", "expected"), CONTRIB)
def test_operators_of_onnx_runtime_have_the_shapes_that_it_gives(
    tmp_path: Path, op: str, inputs: dict[str, tuple[int, ...]], outputs: int, attributes: dict[str, Any], expected: int
) -> None:
    names = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(op, list(inputs), names, domain="com.microsoft", **attributes)
    cost = _cost(tmp_path, _graph([node], inputs, names))
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    results = session.run(None, {name: np.ones(shape, np.float32) for name, shape in inputs.items()})
    feeds = {name: Tensor(shape, "float32") for name, shape in inputs.items()}
    _, found = cost._shapes.visit(feeds)
    assert [found[name].shape for name in names] == [result.shape for result in results]
    assert cost.at({}).flops == expected
