"""The walk: where two graphs, or a graph and its source, part; and that those which do not are left in peace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from isorun.bench import mutations
from isorun.bench.validate import locate, walk
from isorun.bench.validate.lines import deepest
from isorun.bench.validate.program import Program
from isorun.bench.validate.twin import Twin
from isorun.bench.validate.walk import Step

from ...conftest import Exported
from .graphs import model, node

X = {"x": ("float32", ["n", 8])}
Y = {"y": ("float32", ["n", 8])}
FEEDS = {"x": np.random.default_rng(0).standard_normal((5, 8))}


def layers(*, scale: float = 1.0, names: Sequence[str] = "abcd", op: str = "Tanh") -> onnx.ModelProto:
    """y = tanh(x·w·scale)·v + x."""
    rng = np.random.default_rng(1)
    w, v = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    a, b, c, d = names
    nodes = [
        node("MatMul", "x w", a),
        node("Mul", f"{a} s", b),
        node(op, b, c),
        node("MatMul", f"{c} v", d),
        node("Add", f"{d} x", "y"),
    ]
    return model(nodes, X, Y, {"w": w, "v": v, "s": np.float32(scale)})


def between(graph: onnx.ModelProto, other: onnx.ModelProto) -> list[Step]:
    return walk.against(graph, Twin(other, graph), FEEDS)


def test_equal_graphs_do_not_part() -> None:
    steps = between(layers(), layers())
    assert [step.value for step in steps] == [*"abcd", "y"]
    assert locate.first(steps) is None
    assert max(step.error for step in steps) == 0


def test_the_first_value_that_differs_is_that_of_the_changed_node() -> None:
    steps = between(layers(op="Erf"), layers())
    first = locate.first(steps)
    assert first is not None
    assert (first.value, first.op) == ("c", "Erf")
    assert [step.value for step in steps if step.differs] == ["c"], "what follows goes on from the graph's own value"
    assert steps[-1].error > 0.01
    assert steps[-1].local == 0


def test_a_constant_that_differs_is_named() -> None:
    first = locate.first(between(layers(scale=1.5), layers()))
    assert first is not None
    assert (first.value, first.weights) == ("b", ("s",))
    finding = locate.describe(first)
    assert finding.status == "fail"
    assert "first difference: 'b', made by Mul" in finding.says
    assert "other values of s" in finding.says
    assert finding.data["weights"] == ["s"]


def test_other_names_are_paired_by_the_order_of_operators() -> None:
    first = locate.first(between(layers(scale=1.5, names="pqrs"), layers()))
    assert first is not None
    assert first.value == "q"
    assert locate.first(between(layers(names="pqrs"), layers())) is None


def test_a_node_that_fails_is_a_step() -> None:
    graph = layers()
    graph.graph.node[3].input[1] = "narrow"
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((3, 8), np.float32), "narrow"))
    last = between(graph, layers())[-1]
    assert (last.value, last.op, last.local) == ("d", "MatMul", float("inf"))
    assert "MatMul" in last.says


def reshaped(rows: onnx.NodeProto) -> onnx.ModelProto:
    """x·w in a shape whose first size a node makes."""
    name = rows.output[0]
    nodes = [
        node("MatMul", "x w", "a"),
        rows,
        node("Concat", f"{name} eight", f"{name}8", axis=0),
        node("Reshape", f"a {name}8", "y"),
    ]
    return model(nodes, X, Y, {"w": np.eye(8, dtype=np.float32), "eight": np.array([8]), "seven": np.array([7])})


def test_sizes_that_the_graph_alone_has_belong_to_the_node_that_fails_on_them() -> None:
    right = reshaped(node("Shape", "x", "n", end=1))
    last = between(reshaped(node("Identity", "seven", "m")), right)[-1]
    assert (last.value, last.op, last.differs) == ("y", "Reshape", True)
    assert set(last.within) == {"m", "m8"}
    assert "made by Reshape '' after 2 nodes of one operator" in locate.describe(last).says


def test_a_node_that_fails_in_a_local_function_is_a_step() -> None:
    graph = layers()
    graph.graph.node[3].CopyFrom(node("Narrow", "c", "d", domain="local"))
    narrow = [
        node("Constant", "", "w", value=onnx.numpy_helper.from_array(np.ones((3, 8), np.float32))),
        node("MatMul", "a w", "inner"),
        node("Identity", "inner", "b"),
    ]
    versions = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("local", 1)]
    graph.opset_import.append(versions[1])
    graph.functions.append(onnx.helper.make_function("local", "Narrow", ["a"], ["b"], narrow, versions[:1]))
    last = between(graph, layers())[-1]
    assert (last.op, last.within) == ("MatMul", ())


@pytest.fixture(scope="module")
def traced(exported: Exported) -> Callable[[], tuple[Any, Program, Any]]:
    artifact = exported("gpt2", "step")
    program = Program(artifact.source, artifact.phase, artifact.opset)
    feeds = artifact.signature().feeds({"batch": 3, "sequence": 5, "past": 2}, padding="left")
    return lambda: (onnx.load(artifact.model_path), program, feeds)


def test_an_export_does_not_part_from_its_source(traced: Callable[[], Any]) -> None:
    graph, program, feeds = traced()
    steps = walk.against(graph, program, feeds)
    assert locate.first(steps) is None
    assert max(step.error for step in steps) < 1e-12
    assert len(steps) > 50
    assert {"logits", "present.1.value"} <= {step.value for step in steps}


def test_a_fault_is_named_by_module_line_and_weight(traced: Callable[[], Any]) -> None:
    graph, program, feeds = traced()
    mutations.kinds()
    mutant = mutations.apply("matrix negated", graph)
    assert mutant is not None
    first = locate.first(walk.against(mutant, program, feeds))
    assert first is not None
    (weight,) = first.weights
    assert weight == f"{first.module}.weight"
    assert first.module.startswith("model.stack.layers.")
    file, _, line = first.line.partition(":")
    assert (Path(__file__).parents[3] / file).read_text().splitlines()[int(line) - 1].strip()
    assert file.startswith("models/")


def test_names_that_another_trace_gave_are_not_taken_for_these(traced: Callable[[], Any]) -> None:
    graph, program, feeds = traced()
    one = next(one for one in graph.graph.node if one.output[0] == "gelu")
    for entry in one.metadata_props:
        entry.value = entry.value.replace("layers.0", "layers.1")
    assert "gelu" not in {step.value for step in walk.against(graph, program, feeds)}
    del one.metadata_props[:]
    assert "gelu" in {step.value for step in walk.against(graph, program, feeds)}


def test_the_line_is_the_deepest_that_is_not_torch_s() -> None:
    stack = (
        '  File "/a/models/mine.py", line 7, in forward\n  File "/b/site-packages/torch/nn/linear.py", line 9, in f\n'
    )
    assert deepest(stack) == "/a/models/mine.py:7"
    assert deepest("") == ""
