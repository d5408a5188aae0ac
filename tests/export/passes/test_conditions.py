"""What the passes read in a graph: masks, rotations, layouts, and what only looks like them."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import parser, shape_inference

from isorun.export.passes import layout, masks, rotary

# Masks

MASK = """
<ir_version: 10, opset_import: ["" : 23]>
graph (int64[B, t] attention_mask) => (bool[B, 1, t, t] mask)
<int64[2] heads = {1, 2}, int64[1] one = {1}, int64 zero = {0}, int64 unit = {1}, int64 bound = {BOUND}>
{
  wide = Unsqueeze (attention_mask, heads)
  bools = Cast <to = 9> (wide)
  total = Shape <start = 1, end = 2> (attention_mask)
  target = Concat <axis = 0> (one, one, total, one)
  real = Expand (bools, target)
  count = Squeeze (total)
  keys = Range (zero, count, unit)
  queries = Unsqueeze (keys, one)
  gap = Sub (queries, keys)
  before = COMPARE (gap, bound)
  bounded = And (real, before)
  self = Equal (gap, zero)
  mask = LAST
}
"""


def read(compare: str = "GreaterOrEqual", bound: int = 0, last: str = "Or (bounded, self)") -> masks.Mask | None:
    text = MASK.replace("COMPARE", compare).replace("BOUND", str(bound)).replace("LAST", last)
    model = ir.from_proto(shape_inference.infer_shapes(parser.parse_model(text)))
    return masks.read(model.graph.outputs[0])


@pytest.mark.parametrize("last", ["Or (bounded, self)", "Or (self, bounded)", "And (before, real)"])
def test_a_causal_mask_is_read(last: str) -> None:
    found = read(last=last)
    assert found is not None
    assert (found.kind, found.padding.name) == ("causal", "attention_mask")


def test_a_mask_of_real_keys_is_read() -> None:
    found = read(last="Expand (bools, target)")
    assert found is not None
    assert found.kind == "real"


@pytest.mark.parametrize(
    "wrong",
    [
        {"bound": 1},
        {"bound": -1},
        {"compare": "Greater"},
        {"compare": "LessOrEqual"},
        {"last": "Or (before, self)"},
        {"last": "Or (bounded, before)"},
        {"last": "Xor (bounded, self)"},
        {"last": "And (bounded, self)"},
    ],
)
def test_other_masks_are_not_taken_for_causal(wrong: dict[str, str | int]) -> None:
    assert read(**wrong) is None  # type: ignore[arg-type]


# Conditions of the smaller passes


def graph(body: str, inputs: str, outputs: str, constants: str = "") -> ir.Graph:
    text = f'<ir_version: 10, opset_import: ["" : 23]> graph ({inputs}) => ({outputs}) <{constants}> {{ {body} }}'
    return ir.from_proto(shape_inference.infer_shapes(parser.parse_model(text))).graph


ROTATION = """
a, b = Split <axis = 3, num_outputs = 2> (x)
ac = Mul (a, cos)  bs = Mul (b, sin)  left = Sub (ac, bs)
bc = Mul (b, cos)  as = Mul (a, sin)  right = Add (bc, as)
y = Concat <axis = -1> (left, right)
"""
TABLES = "float[B, 4, n, 8] x, float[{0}, 1, n, 4] c, float[{0}, 1, n, 4] s"
NAMED = "cos = Identity (c)  sin = Identity (s) "


@pytest.mark.parametrize(
    ("body", "batch", "applied"),
    [
        (ROTATION, "B", True),
        (ROTATION, "1", False),  # ONNX Runtime refuses tables of batch 1 for more rows
        (ROTATION.replace("Sub (ac, bs)", "Sub (bs, ac)"), "B", False),
        (ROTATION.replace("bc = Mul (b, cos)", "bc = Mul (a, cos)"), "B", False),
        (ROTATION.replace("(left, right)", "(right, left)"), "B", False),
    ],
)
def test_rotations_by_halves_alone_become_rotary_embedding(body: str, batch: str, applied: bool) -> None:
    found = graph(NAMED + body, TABLES.format(batch), "float[B, 4, n, 8] y")
    assert rotary.apply(found).startswith("applied to 1") == applied
    assert any(node.op_type == "RotaryEmbedding" for node in found) == applied


ROUND_TRIP = """
split = Reshape (x, heads)
first = Transpose <perm = [0, 2, 1, 3]> (split)
second = Transpose <perm = [0, 2, 1, 3]> (first)
y = Reshape (second, flat)
z = Relu (y)
"""


@pytest.mark.parametrize(
    ("flat", "perm", "applied"),
    [("0, 0, 32", "0, 2, 1, 3", True), ("0, 0, 32", "0, 1, 2, 3", False), ("0, 8, 16", "0, 2, 1, 3", False)],
)
def test_layouts_cancel_only_where_nothing_changes(flat: str, perm: str, applied: bool) -> None:
    body = ROUND_TRIP.replace("second = Transpose <perm = [0, 2, 1, 3]>", f"second = Transpose <perm = [{perm}]>")
    constants = f"int64[4] heads = {{0, 0, 4, 8}}, int64[3] flat = {{{flat}}}"
    found = graph(body, "float[2, 4, 32] x", "float[p, q, r] z", constants)
    assert layout.apply(found).startswith("applied to 1") == applied
