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


@pytest.mark.parametrize(
    ("written", "bounded"),
    [
        ({"last": "Or (bounded, self)"}, True),
        ({"last": "Or (self, bounded)"}, True),
        ({"last": "And (before, real)"}, False),  # a row of padding sees nothing
        ({"bound": 1}, True),  # the token itself is added again
        ({"last": "Or (before, self)"}, True),  # padding is seen
    ],
)
def test_a_causal_mask_is_known_however_it_is_written(written: dict[str, str | int], bounded: bool) -> None:
    found = read(**written)  # type: ignore[arg-type]
    assert found is not None
    assert (found.kind, found.bounded) == ("causal", bounded)


def test_the_input_that_says_what_is_padding_is_found() -> None:
    found = read()
    assert found is not None
    assert found.padding is not None
    assert found.padding.name == "attention_mask"


def test_a_mask_of_real_keys_is_known() -> None:
    found = read(last="Expand (bools, target)")
    assert found is not None
    assert found.kind == "real"


@pytest.mark.parametrize("bound", [3, 4, 11, 600, "squared", 60_000])
def test_a_band_is_not_taken_for_a_causal_mask_however_wide(bound: int | str) -> None:
    """Its end shows at lengths that are run, or, where that would be too much, nothing is claimed."""
    band = {"compare": "LessOrEqual", "last": "And (bounded, behind)"}
    behind = "behind = GreaterOrEqual (gap, zero)\n  mask ="
    text = MASK.replace("COMPARE", band["compare"]).replace("LAST", band["last"]).replace("mask =", behind)
    if bound == "squared":  # no number is beyond 25, and the band is 625 wide
        text, bound = (
            text.replace("(gap, bound)", "(gap, width)").replace("before =", "width = Mul (bound, bound)  before ="),
            25,
        )
    model = ir.from_proto(shape_inference.infer_shapes(parser.parse_model(text.replace("BOUND", str(bound)))))
    assert masks.read(model.graph.outputs[0]) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"bound": -1},
        {"compare": "LessOrEqual"},
        {"last": "Xor (bounded, self)"},
        {"last": "And (bounded, self)"},
    ],
)
def test_other_masks_are_not_taken_for_causal(wrong: dict[str, str | int]) -> None:
    assert read(**wrong) is None  # type: ignore[arg-type]


# Conditions of the smaller passes


def model(body: str, inputs: str, outputs: str, constants: str = "") -> ir.Model:
    text = f'<ir_version: 10, opset_import: ["" : 23]> graph ({inputs}) => ({outputs}) <{constants}> {{ {body} }}'
    return ir.from_proto(shape_inference.infer_shapes(parser.parse_model(text)))


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
    found = model(NAMED + body, TABLES.format(batch), "float[B, 4, n, 8] y")
    assert rotary.apply(found).startswith("applied to 1") == applied
    assert any(node.op_type == "RotaryEmbedding" for node in found.graph) == applied


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
    found = model(body, "float[2, 4, 32] x", "float[p, q, r] z", constants)
    assert layout.apply(found).startswith("applied to 1") == applied


def test_rows_of_blocks_are_no_rows_of_a_batch() -> None:
    """As many rows as there are blocks in the batch, each with one mask over all keys."""
    text = MASK.replace("COMPARE", "GreaterOrEqual").replace("BOUND", "0").replace("LAST", "Or (bounded, self)")
    text = text.replace("mask =", "whole =").replace("}\n", "  mask = Concat <axis = 0> (whole, whole)\n}\n")
    model = ir.from_proto(parser.parse_model(text.replace("bool[B, 1, t, t]", "bool[C, 1, t, t]")))
    assert masks.read(model.graph.outputs[0]) is None
