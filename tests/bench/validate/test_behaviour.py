"""Causality, padding and the cache, asked of exported graphs: planted faults are found without any reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from isorun.bench.validate import behaviour
from isorun.bench.validate.finding import Finding

from .graphs import Shape, candidate, local, model, node, says, statuses

Exported = Callable[[str, str], Any]


def check(proto: onnx.ModelProto, folder: Path) -> list[Finding]:
    given = candidate(proto, folder)
    return behaviour.check(given, local(given))


def first(proto: onnx.ModelProto, op: str) -> onnx.NodeProto:
    return next(found for found in proto.graph.node if found.op_type == op)


def sees_the_future(proto: onnx.ModelProto) -> None:
    """The distance to a key may be anything, not only 0 or more."""
    proto.graph.initializer.append(numpy_helper.from_array(np.array(-1000), "anything"))
    first(proto, "GreaterOrEqual").input[1] = "anything"


def ignores_padding(proto: onnx.ModelProto) -> None:
    """The mask's second condition stands alone."""
    joined = first(proto, "And")
    joined.input[0] = joined.input[1]


def anchors_at_the_top_left(proto: onnx.ModelProto) -> None:
    """Queries are numbered from 0, whatever the past."""
    keys, rows = first(proto, "Range"), first(proto, "Slice")
    rows.CopyFrom(node("Range", f"{keys.input[0]} n {keys.input[2]}", rows.output[0]))
    extra = [node("Shape", "input_ids", "n_shape", start=1, end=2), node("Squeeze", "n_shape", "n")]
    for i, one in enumerate(extra):
        proto.graph.node.insert(i, one)


def counts_positions_from_the_start(proto: onnx.ModelProto) -> None:
    """Positions 0 to n-1, whatever the past and the padding."""
    for found in proto.graph.node:
        for i, name in enumerate(found.input):
            if name == "position_ids" and found.op_type == "Gather":
                found.input[i] = "from_zero"
    keys = first(proto, "Range")
    extra = [
        node("Shape", "input_ids", "n_shape", start=1, end=2),
        node("Squeeze", "n_shape", "n"),
        node("Range", f"{keys.input[0]} n {keys.input[2]}", "counted"),
        node("Shape", "input_ids", "ids_shape"),
        node("Expand", "counted ids_shape", "from_zero"),
    ]
    rest = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend([*extra, *rest])


def keeps_new_keys_before_the_past(proto: onnx.ModelProto) -> None:
    """The cache grows at the wrong end."""
    joined = next(found for found in proto.graph.node if found.output[0] == "present.0.key")
    joined.input[0], joined.input[1] = joined.input[1], joined.input[0]


def reads_new_keys_before_the_past(proto: onnx.ModelProto) -> None:
    """Keys and values alike: steps of one token are a set and stay right, several tokens see the wrong ones."""
    for found in proto.graph.node:
        if found.op_type == "Concat" and found.output[0].startswith("present."):
            found.input[0], found.input[1] = found.input[1], found.input[0]


def stack(proto: onnx.ModelProto) -> None:
    """The cache as older exporters write it: keys and values of a layer in one tensor, past_0 and present_0."""
    proto.graph.initializer.extend(numpy_helper.from_array(np.array(i), f"number{i}") for i in (0, 1))
    proto.graph.initializer.append(numpy_helper.from_array(np.array([0]), "front"))
    for values, old, new in (
        (proto.graph.input, "past_key_values", "past"),
        (proto.graph.output, "present", "present"),
    ):
        cached = [value for value in values if value.name.startswith(old)]
        for value in cached:
            values.remove(value)
        for layer in range(len(cached) // 2):
            keys = next(value for value in cached if value.name == f"{old}.{layer}.key")
            both = values.add()
            both.CopyFrom(keys)
            both.name = f"{new}_{layer}"
            del both.type.tensor_type.shape.dim[:]
            both.type.tensor_type.shape.dim.add(dim_value=2)
            both.type.tensor_type.shape.dim.extend(keys.type.tensor_type.shape.dim)
            names = [f"{old}.{layer}.{part}" for part in ("key", "value")]
            if new == "past":
                for i, name in enumerate(names):
                    proto.graph.node.insert(0, node("Gather", f"past_{layer} number{i}", name, axis=0))
            else:
                proto.graph.node.extend(node("Unsqueeze", f"{name} front", f"{name}/front") for name in names)
                fronts = " ".join(f"{name}/front" for name in names)
                proto.graph.node.append(node("Concat", fronts, f"present_{layer}", axis=0))
    for value in (*proto.graph.input, *proto.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "past + sequence":
                dim.dim_param = "total_sequence_length"


def test_the_cache_by_other_names() -> None:
    ids = ["input_ids", "attention_mask"]
    assert behaviour.cache([*ids, "past_0"], ["logits", "present_0"]) == {"past_0": "present_0"}
    assert behaviour.cache([*ids, "past"], ["logits", "present"]) == {"past": "present"}
    by_layer = behaviour.cache(["past_key_values.0.key"], ["present.0.key", "logits"])
    assert by_layer == {"past_key_values.0.key": "present.0.key"}
    assert behaviour.cache(["past_key_values.0.key"], ["present_key_values.0.key"])
    assert behaviour.cache(["past_key_0", "past_value_0"], ["present_key_0"]) == {}
    assert behaviour.cache([*ids, "past_length"], ["logits"]) == {}


@pytest.mark.parametrize("plant", [counts_positions_from_the_start, reads_new_keys_before_the_past])
def test_a_stacked_cache_is_asked_the_same(
    exported: Exported, tmp_path: Path, plant: Callable[[onnx.ModelProto], None]
) -> None:
    for faulty in (False, True):
        proto = onnx.load(exported("gpt2", "step").model_path)
        if faulty:
            plant(proto)
        stack(proto)
        findings = check(proto, tmp_path)
        assert len(findings) == 3
        assert ("cached steps differ" in says(findings)) == faulty


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (reads_new_keys_before_the_past, {"cached steps differ"}),
        (sees_the_future, {"another last token"}),
        (ignores_padding, {"left padding"}),
        (anchors_at_the_top_left, {"cached steps differ"}),
        (counts_positions_from_the_start, {"left padding", "cached steps differ"}),
        (keeps_new_keys_before_the_past, {"cached steps differ"}),
    ],
)
def test_planted_faults(
    exported: Exported, tmp_path: Path, plant: Callable[[onnx.ModelProto], None], found: set[str]
) -> None:
    proto = onnx.load(exported("gpt2", "step").model_path)
    assert statuses(check(proto, tmp_path)) == ["pass", "pass", "pass"]
    plant(proto)
    text = says(check(proto, tmp_path))
    assert {words for words in found if words in text} == found


def test_an_encoder_that_ignores_padding(exported: Exported, tmp_path: Path) -> None:
    proto = onnx.load(exported("bert-base", "forward").model_path)
    assert statuses(check(proto, tmp_path)) == ["pass"]
    for found in proto.graph.node:
        for i, name in enumerate(found.input):
            if name == "attention_mask" and found.op_type != "Shape":
                found.input[i] = "all_real"
    ones = [node("Shape", "attention_mask", "mask_shape"), node("Expand", "one mask_shape", "all_real")]
    rest = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend([*ones, *rest])
    proto.graph.initializer.append(numpy_helper.from_array(np.array(1), "one"))
    assert "right padding" in says(check(proto, tmp_path))


def pooled(*, masked: bool) -> onnx.ModelProto:
    """The mean of table[ids] over the real tokens, or over all of them; (batch, 4), without a sequence."""
    weights = "m" if masked else "ones"
    nodes = [
        node("Gather", "table input_ids", "e"),
        node("Cast", "attention_mask", "f", to=1),
        node("Unsqueeze", "f last", "m"),
        node("Mul", "m zero", "zeros"),
        node("Add", "zeros one", "ones"),
        node("Mul", f"e {weights}", "w"),
        node("ReduceSum", "w axis", "sum", keepdims=0),
        node("ReduceSum", f"{weights} axis", "count", keepdims=0),
        node("Div", "sum count", "sentence_embedding"),
    ]
    shape: Shape = ["batch", "sequence"]
    table = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    constants = {
        "table": table,
        "last": np.array([2]),
        "axis": np.array([1]),
        "one": np.float32(1),
        "zero": np.float32(0),
    }
    inputs = {"input_ids": ("int64", shape), "attention_mask": ("int64", shape)}
    return model(nodes, inputs, {"sentence_embedding": ("float32", ["batch", 4])}, constants)


def test_a_pooled_output_has_no_sequence_to_cut(tmp_path: Path) -> None:
    assert statuses(check(pooled(masked=True), tmp_path)) == ["pass"]
    assert "right padding" in says(check(pooled(masked=False), tmp_path))


@pytest.mark.parametrize("shape", [["batch"], ["batch", "sequence", 1]])
def test_nothing_is_asked_of_other_ranks(tmp_path: Path, shape: Shape) -> None:
    inputs = {"input_ids": ("int64", shape), "attention_mask": ("int64", shape)}
    proto = model([node("Add", "input_ids attention_mask", "y")], inputs, {"y": ("int64", shape)})
    assert check(proto, tmp_path) == []
