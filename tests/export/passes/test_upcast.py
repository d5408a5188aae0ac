"""The upcast pass: nothing narrow is left, nothing else is touched, the input stays as it was."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser, printer
from onnx.reference import ReferenceEvaluator

from isorun.export.passes.upcast import upcast

# One of everything that names a float type. The If holds a subgraph; `f` gets its type and its value from the call.
# The parser takes 16-bit floats by their bits: hw is [1, 2, 3, 4] and b is 3.
EVERYTHING = """
<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
graph (float[N, 4] x, float16[4] h, int64[N] ids, bool flag) => (float[N, 4] y, float16[4] z, seq(float) s, int32[4] k)
<float[4] w = {0.1, 0.2, 0.3, 0.4}, float16[4] hw = {15360, 16384, 16896, 17408}, bfloat16 b = {16448},
 int64[2] shape = {1, 4}, float[N, 4] normed>
{
  one = Constant <value = float {0.1}> ()
  two = Constant <value_float = 0.7> ()
  many = Constant <value_floats = [0.1, 0.2, 0.3, 0.4]> ()
  three = Constant <value_int = 3> ()
  zeros = ConstantOfShape (shape)
  ones = ConstantOfShape <value = int64[1] {1}> (shape)
  eye = EyeLike <dtype = 1> (ones)
  scaled = local.f <dtype: int = 1, alpha: float = 0.3> (x)
  normed = LayerNormalization (scaled, w)
  stashed = LayerNormalization <stash_type = 1> (normed, many)
  widened = Cast <to = 1> (h)
  narrowed = Cast <to = 16> (widened)
  k = Cast <to = 6> (narrowed)
  z = Mul (h, hw)
  picked = If (flag) <
    then_branch = then_graph () => (float[4] t) <float[4] c = {1, 2, 3, 4}> { t = Mul (c, widened) },
    else_branch = else_graph () => (float[4] e) { e = Constant <value = float[4] {1, 1, 1, 1}> () }
  >
  a = Add (stashed, zeros)
  b2 = Add (a, picked)
  y = Mul (b2, two)
  s = SequenceEmpty ()
}
<domain: "local", opset_import: ["" : 18]>
f <dtype, alpha> (v) => (r)
{
  c = Constant <value_float: float = @alpha> ()
  d = Cast <to: int = @dtype> (c)
  r = Mul (v, d)
}
"""


@pytest.fixture
def model() -> ModelProto:
    return parser.parse_model(EVERYTHING)


def test_no_narrow_type_is_left(model: ModelProto) -> None:
    before, after = printer.to_text(model), printer.to_text(upcast(model))
    narrow = re.compile(r"\b(float|float16|bfloat16)\b(?! = )")
    assert len(narrow.findall(before)) > 12
    assert narrow.findall(after) == []
    assert "to: int = 11" in after
    assert not re.search(r"(to|dtype|stash_type): int = (1|10|16)\b", after)


def test_the_result_is_a_valid_model(model: ModelProto) -> None:
    """Full type inference: one narrow operand beside a double would be refused."""
    onnx.checker.check_model(upcast(model), full_check=True)


def test_the_input_is_not_changed(model: ModelProto) -> None:
    before = model.SerializeToString(deterministic=True)
    upcast(model)
    assert model.SerializeToString(deterministic=True) == before


def test_upcasting_twice_changes_nothing_more(model: ModelProto) -> None:
    once = upcast(model)
    assert upcast(once).SerializeToString(deterministic=True) == once.SerializeToString(deterministic=True)


def test_values_keep_the_rounding_they_were_stored_with(model: ModelProto) -> None:
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in upcast(model).graph.initializer}
    assert stored["w"].tolist() == [float(np.float32(v)) for v in (0.1, 0.2, 0.3, 0.4)]
    assert stored["w"].tolist() != [0.1, 0.2, 0.3, 0.4]
    assert (stored["hw"].tolist(), stored["b"].tolist()) == ([1, 2, 3, 4], 3)
    assert stored["shape"].dtype == np.int64
    assert [stored[name].dtype for name in ("w", "hw", "b")] == [np.float64] * 3


def test_the_plain_reference_evaluates_it_in_double(model: ModelProto) -> None:
    rng = np.random.default_rng(0)
    x, h = rng.standard_normal((3, 4)), rng.standard_normal(4)
    graph = upcast(model)
    for node in graph.graph.node:  # the plain reference knows LayerNormalization with a float stash only
        if node.op_type == "LayerNormalization":
            node.attribute[0].i = TensorProto.FLOAT
    feeds = {"x": x, "h": h, "ids": np.zeros(3, np.int64), "flag": np.array(True)}
    y, z, _, k = ReferenceEvaluator(graph).run(None, feeds)

    def norm(v: np.ndarray) -> np.ndarray:
        return (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + float(np.float32(1e-5)))

    f = {v: float(np.float32(v)) for v in (0.1, 0.2, 0.3, 0.4, 0.7)}
    weight = np.array([f[0.1], f[0.2], f[0.3], f[0.4]])
    expected = (norm(norm(x * f[0.3]) * weight) * weight + np.array([1, 2, 3, 4]) * h) * f[0.7]
    assert np.abs(y - expected).max() < 1e-13
    assert z.tolist() == (h * [1, 2, 3, 4]).tolist()
    assert k.dtype == np.int32


def test_softmax_precision() -> None:
    model = parser.parse_model("""
      <ir_version: 10, opset_import: ["" : 23]>
      graph (float[1,2,3,4] q) => (float[1,2,3,4] y) { y = Attention <softmax_precision = 1> (q, q, q) }
    """)
    attribute = upcast(model).graph.node[0].attribute[0]
    assert (attribute.name, attribute.i) == ("softmax_precision", TensorProto.DOUBLE)


def test_quantised_weights_keep_their_integers() -> None:
    model = parser.parse_model("""
      <ir_version: 9, opset_import: ["" : 19]>
      graph (float[2] x) => (float[2] y) <int8[2] w = {-3, 5}, int8 zero = {1}, float scale = {0.1}>
      { d = DequantizeLinear (w, scale, zero)  y = Mul (x, d) }
    """)
    double = upcast(model)
    assert {t.name: t.data_type for t in double.graph.initializer} == {
        "w": TensorProto.INT8,
        "zero": TensorProto.INT8,
        "scale": TensorProto.DOUBLE,
    }
    (y,) = ReferenceEvaluator(double).run(None, {"x": np.array([1.0, 1.0])})
    assert y.tolist() == [-4 * float(np.float32(0.1)), 4 * float(np.float32(0.1))]


def test_sparse_initializer() -> None:
    values = helper.make_tensor("s", TensorProto.FLOAT, [1], [0.1])
    indices = helper.make_tensor("i", TensorProto.INT64, [1], [2])
    graph = helper.make_graph([], "g", [], [])
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    (sparse,) = upcast(helper.make_model(graph)).graph.sparse_initializer
    assert (sparse.values.name, sparse.values.data_type) == ("s", TensorProto.DOUBLE)
    assert sparse.indices.data_type == TensorProto.INT64


def test_a_function_of_another_opset_is_refused(model: ModelProto) -> None:
    model.functions[0].opset_import[0].version = 17
    with pytest.raises(ValueError, match="inline the local functions f: they import another opset"):
        upcast(model)
