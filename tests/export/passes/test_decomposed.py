"""Attention written out, as exporters and modules of users do it: fused where it is attention, left alone elsewhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
import transformers
from onnx import parser

from isorun.bench.proof import Proof
from isorun.export import passes
from isorun.export.artifact import graph_signature
from isorun.runtimes.reference import Float64Graph

from ...benchmarks.theirs import write as write_theirs
from ..folders import tokens, write

# Keys and values of 2 heads for 4 query heads, in a graph without any declared shape but those of its inputs.
WRITTEN = """
<ir_version: 8, opset_import: ["" : 17]>
graph (float[batch, sequence, 16] x, int64[batch, sequence] attention_mask) => (float[batch, sequence, 16] y)
<int64[4] four = {0, 0, 4, 4}, int64[4] two = {0, 0, 2, 4}, int64[3] flat = {0, 0, 16}, int64[1] zero = {0},
 int64[1] one = {1}, int64[1] half = {8}, int64[1] rest = {16}, int64[1] axis = {2}, int64[5] times = {TIMES},
 int64[2] middle = {1, 2}, int64 none = {0}, int64 step = {1}, int64 reach = {REACH}, float null = {0.0},
 float far = {-3.4028234663852886e+38}, float root = {2.0}, float factor = {0.5}>
{
  wide = Slice (x, zero, half, axis)
  last = Slice (x, half, rest, axis)
  qs = Reshape (x, four)
  ks = Reshape (wide, two)
  vs = Reshape (last, two)
  q = Transpose <perm = [0, 2, 1, 3]> (qs)
  k = Transpose <perm = [0, 2, 1, 3]> (ks)
  v = Transpose <perm = [0, 2, 1, 3]> (vs)
  kw = Unsqueeze (k, REPEAT)
  vw = Unsqueeze (v, REPEAT)
  kr = Expand (kw, times)
  vr = Expand (vw, times)
  shape = Shape (q)
  kh = Reshape (kr, shape)
  vh = Reshape (vr, shape)
  kt = Transpose <perm = [0, 1, 3, 2]> (kh)
  counted = Shape <start = 1, end = 2> (x)
  count = Squeeze (counted)
  index = Range (none, count, step)
  column = Unsqueeze (index, one)
  gap = Sub (column, index)
  behind = GreaterOrEqual (gap, none)
  near = Less (gap, reach)
  band = And (behind, near)
  bools = Cast <to = 9> (attention_mask)
  real = Unsqueeze (bools, middle)
  seen = And (real, band)
  hidden = Not (seen)
  added = Where (seen, null, far)
  SCORES
  p = Softmax <axis = -1> (s)
  GUARD
  o = MatMul (g, vh)
  back = Transpose <perm = [0, 2, 1, 3]> (o)
  y = Reshape (back, flat)
}
"""
SCORES = {
    "divided, and a mask added": "a = MatMul (q, kt)  b = Div (a, root)  s = Add (b, added)",
    "a mask on the left": "a = MatMul (q, kt)  b = Mul (factor, a)  s = Add (added, b)",
    "both sides scaled": "e = Mul (q, factor)  f = Div (kt, root)  a = MatMul (e, f)  s = Add (a, added)",
    "the seen chosen": "a = MatMul (q, kt)  b = Div (a, root)  s = Where (seen, b, far)",
    "the hidden filled": "a = MatMul (q, kt)  b = Div (a, root)  s = Where (hidden, far, b)",
}
DIVIDED = SCORES["divided, and a mask added"]
GUARDS = {"none": "g = Identity (p)", "of NaN": "n = IsNaN (p)  g = Where (n, null, p)"}


def written(scores: str = DIVIDED, *, repeat: str = "axis", guard: str = "none", reach: int = 10**12) -> ir.Model:
    text = WRITTEN.replace("SCORES", scores).replace("REPEAT", repeat).replace("GUARD", GUARDS[guard])
    text = text.replace("TIMES", "1, 1, 2, 1, 1" if repeat == "axis" else "1, 2, 1, 1, 1")
    return ir.from_proto(parser.parse_model(text.replace("REACH", str(reach))))


def fuse(model: ir.Model) -> list[str]:
    """The notes of all passes, each of which is proved."""
    return passes.apply(model, "ort-cpu", Proof(graph_signature(ir.to_proto(model).graph)))


def kinds(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.all_nodes())


@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
@pytest.mark.parametrize("guard", GUARDS)
def test_attention_is_fused_however_it_is_written(scores: str, guard: str) -> None:
    model = written(scores, guard=guard)
    before = Float64Graph(ir.to_proto(model))
    notes = fuse(model)
    assert notes[0].startswith("decomposed: applied to 1 of 1 softmaxes, raised from opset 17 to 23, the same function")
    assert notes[2].startswith("causal: applied to 1 of 1 Attention, the same function")
    found = kinds(model)
    assert found["GroupQueryAttention"] > 0
    assert found["Softmax"] == 0
    rng = np.random.default_rng(0)
    mask = np.array([[1, 1, 0, 1, 1], [0, 0, 1, 1, 1]])
    feeds = {"x": rng.standard_normal((2, 5, 16)).astype(np.float32), "attention_mask": mask}
    after = Float64Graph(ir.to_proto(model)).run(feeds)
    np.testing.assert_allclose(after["y"], before.run(feeds)["y"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (written(repeat="one"), "rolled back: y differs"),  # heads tiled, where the operator repeats them
        (written(reach=3), "not applied: none of 1 softmaxes has a mask"),
        (written(reach=600), "not applied: none of 1 softmaxes has a mask"),
        (written(DIVIDED.replace("(b, added)", "(b, kt)")), "not applied: "),
        (written(f"{DIVIDED.replace('s =', 'r =')}  s = Tanh (r)"), "not applied: no softmax stands between"),
        (written(DIVIDED.replace("(q, kt)", "(q, q)")), "not applied: the shapes on the way cannot be observed"),
    ],
)
def test_what_is_no_such_attention_stays_as_it_was(model: ir.Model, reason: str) -> None:
    before = ir.to_proto(model).SerializeToString()
    assert fuse(model)[0].startswith(f"decomposed: {reason}")
    assert ir.to_proto(model).SerializeToString() == before


def test_without_a_proof_nothing_is_guessed() -> None:
    model = written()
    assert passes.apply(model, "ort-cpu")[0] == "decomposed: not applied: nothing here can prove it"
    assert kinds(model)["Softmax"] == 1


@pytest.mark.parametrize("dynamo", [True, False], ids=["torch.export", "TorchScript"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_exports_that_users_have_are_fused(tmp_path: Path, dynamo: bool, attention: str) -> None:
    """Llama as both of torch's exporters write it, at opsets of theirs, without isorun's help."""
    folder = write("llama", tmp_path / "llama")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention).eval()
    file = tmp_path / "theirs.onnx"
    write_theirs(file, model, tokens((2, 7)), dynamo=dynamo, opset_version=18 if dynamo else 17)
    graph = ir.load(file)
    notes = fuse(graph)
    assert [note.split(",")[0] for note in (notes[0], notes[2])] == [
        "decomposed: applied to 2 of 2 softmaxes",
        "causal: applied to 2 of 2 Attention",
    ]
    onnx.checker.check_model(ir.to_proto(graph), full_check=True)
    mask = torch.tensor([[1] * 9, [0, 0, 1, 1, 1, 1, 1, 1, 1]])
    feeds = {"input_ids": tokens((2, 9)), "attention_mask": mask}
    with torch.no_grad():
        truth = model(**feeds).logits.numpy()
    found = Float64Graph(ir.to_proto(graph)).run({name: array.numpy() for name, array in feeds.items()})["logits"]
    real = mask.numpy().astype(bool)
    np.testing.assert_allclose(found[real], truth[real], rtol=0, atol=1e-5 * np.abs(truth[real]).max())
