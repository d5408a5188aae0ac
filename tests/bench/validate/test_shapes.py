"""Shapes: what is baked at one size is found, free axes pass, and a runtime that refuses is told from a wrong graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from isorun.bench.client import WorkerDied
from isorun.bench.validate import feeds as made
from isorun.bench.validate import shapes
from isorun.bench.validate.candidate import open_candidate
from isorun.bench.validate.evaluators import Unloadable
from isorun.bench.validate.finding import Finding
from isorun.export.source import Source
from isorun.models.signature import Signature, TensorSpec

from .graphs import Array, Local, Shape, candidate, linear, local, model, node, save, says, statuses

FREE: Shape = ["batch", "sequence", 8]


def check(proto: onnx.ModelProto, folder: Path, source: onnx.ModelProto | None = None) -> list[Finding]:
    given = candidate(proto, folder)
    behind = Source("file", str(save(source, folder, "source.onnx"))) if source else None
    return shapes.check(given, local(given, behind), ["ort-cpu"], sourced=source is not None)


def split_heads(length: int, *, free: bool) -> onnx.ModelProto:
    """(batch, n, 8) to (batch, n, 2, 4) and back, by a shape that is asked for or one that was traced."""
    nodes = [node("Reshape", "x split", "h"), node("Reshape", "h merge", "y")]
    n = 0 if free else length  # 0 copies the axis
    constants = {"split": np.array([0, n, 2, 4]), "merge": np.array([0, n, 8])}
    return model(nodes, {"x": ("float32", FREE)}, {"y": ("float32", FREE)}, constants)


def test_a_length_baked_into_a_reshape(tmp_path: Path) -> None:
    assert statuses(check(split_heads(7, free=True), tmp_path)) == ["pass"]
    text = says(check(split_heads(7, free=False), tmp_path))
    assert "shapes do not run although their axes are free" in text
    assert "sequence 1" in text


def table(rows: int) -> onnx.ModelProto:
    """x + table: one row, traced at n = 1, is spread over every length without a word."""
    weights = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    nodes = [node("Shape", "x", "n", start=1, end=2), node("Slice", "table zero n zero", "p"), node("Add", "x p", "y")]
    if rows == 1:
        nodes = [node("Slice", "table zero one zero", "p"), node("Add", "x p", "y")]
    constants = {"table": weights, "zero": np.array([0]), "one": np.array([1])}
    return model(nodes, {"x": ("float32", FREE)}, {"y": ("float32", FREE)}, constants)


def test_a_position_table_traced_at_length_1_is_another_function_from_2_on(tmp_path: Path) -> None:
    assert statuses(check(table(64), tmp_path, table(64))) == ["pass", "pass"]
    text = says(check(table(1), tmp_path, table(64)))
    assert "sequence 2" in text
    assert "sequence 1," not in text.split("first at")[1].split(":")[0]


def test_graph_and_source_that_differ_in_rounding_only(tmp_path: Path) -> None:
    """x·(w·v) and (x·w)·v in float64."""
    rng = np.random.default_rng(0)
    w, v = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    pair = []
    for nodes in (
        [node("MatMul", "w v", "m"), node("MatMul", "x m", "y")],
        [node("MatMul", "x w", "h"), node("MatMul", "h v", "y")],
    ):
        pair.append(model(nodes, {"x": ("float32", FREE)}, {"y": ("float32", FREE)}, {"w": w, "v": v}))
    assert "fail" not in statuses(check(pair[0], tmp_path, pair[1]))
    assert "fail" in statuses(check(pair[0], tmp_path, linear()))


def test_a_missing_output_of_the_source(tmp_path: Path) -> None:
    source = linear()
    source.graph.node.append(node("Neg", "y", "z"))
    source.graph.output.append(onnx.helper.make_tensor_value_info("z", 1, FREE))
    assert "z: missing" in says(check(linear(), tmp_path, source))


@pytest.mark.parametrize(("stored", "status"), [(np.sqrt(0.5), "note"), (np.sqrt(0.5) * (1 + 1e-6), "fail")])
def test_a_constant_rounded_to_float32_is_no_other_function(tmp_path: Path, stored: float, status: str) -> None:
    graph = model(
        [node("Mul", "x c", "y")], {"x": ("float32", FREE)}, {"y": ("float32", FREE)}, {"c": np.float32(stored)}
    )
    nodes = [node("Sqrt", "half", "c"), node("Mul", "x c", "y")]
    source = model(nodes, {"x": ("float32", FREE)}, {"y": ("float32", FREE)}, {"half": np.float32(0.5)})
    findings = check(graph, tmp_path, source)
    assert status in statuses(findings)
    assert ("fail" in statuses(findings)) == (status == "fail")
    if status == "note":
        assert "constants rounded to float32" in says(findings, "note")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (["batch", "sequence", 8], "[1, 7, 8] at batch 1, sequence 33"),
        (["batch", 7, 8], "[1, 1, 8] at batch 1, sequence 1"),
        (["batch", 8], "[1, 1, 8] at"),
        (["batch", "rest", 8], ""),
        (["batch", "?", 8], ""),
    ],
)
def test_declared_and_real_shapes_of_outputs(tmp_path: Path, shape: Shape, words: str) -> None:
    """All but the first seven tokens are lost: without a source a length that was baked in shows here alone."""
    nodes = [node("Slice", "x zero seven one", "y")]
    constants = {"zero": np.array([0]), "seven": np.array([7]), "one": np.array([1])}
    findings = check(model(nodes, {"x": ("float32", FREE)}, {"y": ("float32", shape)}, constants), tmp_path)
    assert words in says(findings, "note")
    assert statuses(findings) == ["note", "pass"] if words else ["pass"]


def only(batch: int) -> onnx.ModelProto:
    """-x, traced at one size of the batch; the length is free."""
    nodes = [node("Reshape", "x sizes", "h"), node("Neg", "h", "y")]
    return model(nodes, {"x": ("float32", FREE)}, {"y": ("float32", FREE)}, {"sizes": np.array([batch, 0, 8])})


def test_sizes_that_the_source_does_not_take_are_not_held_against_the_graph(tmp_path: Path) -> None:
    graph = model([node("Neg", "x", "y")], {"x": ("float32", FREE)}, {"y": ("float32", FREE)})
    findings = check(graph, tmp_path, only(1))
    assert statuses(findings) == ["pass", "note", "pass"]
    assert "not compared at 4 shapes, at which the source does not run: batch 3" in findings[1].says
    findings = check(graph, tmp_path, only(2))
    assert statuses(findings, "shapes") == ["error"]
    assert "the source runs at no shape" in findings[0].says


class Failing(Local):
    """A runtime that refuses the model, or dies of it, beside the arbiter."""

    error: Exception = Unloadable("no such operator")

    def run(self, runtime: str, feeds: Any, *, optimise: bool = True) -> dict[str, Array]:
        if runtime == "openvino":
            raise self.error
        return super().run(runtime, feeds, optimise=optimise)


@pytest.mark.parametrize(
    ("error", "died"), [(Unloadable("no such operator"), False), (WorkerDied("killed by SIGSEGV"), True)]
)
def test_a_runtime_that_refuses_or_dies_is_an_error_not_a_difference(
    tmp_path: Path, error: Exception, died: bool
) -> None:
    given = candidate(linear(), tmp_path)
    failing: Any = Failing(given.path, "fp32", given.artifact.source, "forward")
    failing.error = error
    findings = shapes.check(given, failing, ["ort-cpu", "openvino"], sourced=False)
    assert statuses(findings) == ["pass", "error"]
    assert str(error) in findings[1].says
    assert findings[1].data["died"] is died


def test_without_an_arbiter_the_plain_runtime_is_the_judge(tmp_path: Path) -> None:
    proto = model(
        [node("FastGelu", "x", "y", domain="com.microsoft")], {"x": ("float32", FREE)}, {"y": ("float32", FREE)}
    )
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    findings = check(proto, tmp_path)
    assert statuses(findings) == ["note", "pass"]
    assert "no float64 truth" in findings[0].says


def test_an_operator_that_nobody_has(tmp_path: Path) -> None:
    proto = model([node("Nothing", "x", "y", domain="com.example")], {"x": ("float32", FREE)}, {"y": ("float32", FREE)})
    proto.opset_import.append(onnx.helper.make_opsetid("com.example", 1))
    findings = check(proto, tmp_path)
    assert "error" in statuses(findings)
    assert "com.example" in says(findings, "error")


@pytest.mark.parametrize(
    ("dtype", "shape", "words"),
    [
        ("object", ["n"], "takes object"),
        ("complex64", ["n"], "takes complex64"),
        ("float32", [2**40, 2**30], "GiB"),
    ],
)
def test_a_model_that_was_never_run_is_an_error(tmp_path: Path, dtype: str, shape: Shape, words: str) -> None:
    findings = check(model([node("Identity", "x", "y")], {"x": (dtype, shape)}, {"y": (dtype, shape)}), tmp_path)
    assert statuses(findings) == ["error"]
    assert "never run" in findings[0].says
    assert words in findings[0].says
    assert "--inputs" in findings[0].remedy


def test_positions_without_a_mask_count_on_from_the_past() -> None:
    signature = Signature(
        (TensorSpec("position_ids", "int64", ("batch", "sequence")), TensorSpec("x", "float32", ("batch", "past"))), ()
    )
    feeds = made.make(signature, {"batch": 2, "sequence": 3, "past": 4})
    assert feeds["position_ids"].tolist() == [[4, 5, 6], [4, 5, 6]]
    assert list(feeds) == ["position_ids", "x"]


@pytest.mark.parametrize("shape", [["batch"], ["batch", 1, "n", "n"]])
def test_masks_of_other_ranks_are_not_guessed(shape: Shape) -> None:
    signature = Signature((TensorSpec("attention_mask", "float32", tuple(shape)),), ())  # type: ignore[arg-type]
    with pytest.raises(made.NoFeeds, match="attention_mask"):
        made.make(signature, {"batch": 1, "n": 2})


@pytest.mark.parametrize(
    ("name", "phase"), [("gpt2", "step"), ("llama3-8b", "forward"), ("lstm", "forward"), ("bert-base", "forward")]
)
def test_unmutated_exports_pass(exported: Callable[[str, str], Any], name: str, phase: str) -> None:
    artifact = exported(name, phase)
    given = open_candidate(artifact.folder)
    findings = shapes.check(given, local(given), ["ort-cpu"], sourced=True)
    assert statuses(findings) == ["pass", "pass"]


def counted(axis: str) -> onnx.ModelProto:
    """x times the number of tokens of one of the inputs."""
    free: Shape = ["batch", "source", 8]
    nodes = [
        onnx.helper.make_node("Shape", [axis], ["n"], start=1, end=2),
        onnx.helper.make_node("Cast", ["n"], ["c"], to=1),
        node("Mul", "x c", "h"),
        onnx.helper.make_node("ReduceMean", ["m", "one"], ["r"]),
        node("Add", "h r", "y"),
    ]
    inputs = {"x": ("float32", FREE), "m": ("float32", free)}
    return model(nodes, inputs, {"y": ("float32", FREE)}, {"one": np.array([1])})


def test_lengths_of_encoder_and_decoder_that_are_confused(tmp_path: Path) -> None:
    """Two graphs that are one function wherever both lengths are equal."""
    assert "fail" not in statuses(check(counted("m"), tmp_path, counted("m")))
    assert "fail" in statuses(check(counted("x"), tmp_path, counted("m")))
