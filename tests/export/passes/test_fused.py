"""The passes of a target: where they apply and where not, and that what they write is the same function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser, shape_inference

from isorun.bench.proof import Proof
from isorun.export import passes
from isorun.export.artifact import ExportedModel
from isorun.export.passes import gqa, layout, masks, rotary
from isorun.runtimes.reference import Float64Graph

Exported = Callable[[str, str], ExportedModel]
Fast = Callable[[str, str], tuple[ir.Model, list[str]]]

# Which operators are in the graph afterwards, counted with those of all branches: ten kernels a layer in branches of an
# If (whole, with bias, and 8 chunks), and nothing left of what they replace.
KINDS = {
    ("llama3-8b", "forward"): {"GroupQueryAttention": 2 * 10, "RotaryEmbedding": 4, "Attention": 0},
    ("llama3-8b", "step"): {"GroupQueryAttention": 2 * 10, "RotaryEmbedding": 4, "Attention": 0},
    ("gpt2", "step"): {"GroupQueryAttention": 2 * 10, "Attention": 0},
    ("bert-base", "forward"): {"MultiHeadAttention": 2, "Attention": 0},
    ("transformer-base", "forward"): {"MultiHeadAttention": 4, "GroupQueryAttention": 2 * 10, "Attention": 0},
    ("transformer-base", "step"): {"MultiHeadAttention": 2, "GroupQueryAttention": 2 * 10, "Attention": 0},
    ("mistral-7b", "step"): {"Attention": 2, "RotaryEmbedding": 4, "GroupQueryAttention": 0},
    ("lstm", "forward"): {"Attention": 0, "GroupQueryAttention": 0},
}


@pytest.fixture(scope="session")
def fast(exported: Exported) -> Fast:
    """`fast(preset, phase)`: the graph for ONNX Runtime's CPU, and the notes, without a proof."""

    @cache
    def get(name: str, phase: str) -> tuple[ir.Model, list[str]]:
        model = ir.load(exported(name, phase).model_path)
        return model, passes.apply(model, "ort-cpu")

    return get


@pytest.mark.parametrize(("name", "phase"), KINDS)
def test_passes_write_these_operators(fast: Fast, name: str, phase: str) -> None:
    model, notes = fast(name, phase)
    found = Counter(node.op_type for node in model.graph.all_nodes())
    assert {kind: found[kind] for kind in KINDS[name, phase]} == KINDS[name, phase]
    assert [note.split(":")[0] for note in notes] == ["rotary", "causal", "bidirectional", "layout"]


@pytest.mark.parametrize(("name", "phase"), KINDS)
def test_the_rewritten_graph_is_the_source(exported: Exported, fast: Fast, name: str, phase: str) -> None:
    """Against torch in float64, where padding lies left, right and in a hole, and a past is empty or not."""
    from isorun.bench.truth import distance, outputs64

    artifact = exported(name, phase)
    graph, module, signature = Float64Graph(ir.to_proto(fast(name, phase)[0])), artifact.module(), artifact.signature()
    for batch, tokens, past, padding in ((1, 1, 0, "none"), (3, 9, 4, "left"), (3, 9, 4, "right"), (3, 9, 0, "hole")):
        sizes = {"batch": batch, "sequence": tokens, "past": past, "source": 5}
        feeds = signature.feeds(sizes, padding="none" if padding == "hole" else padding)
        for mask in [feed for feed in feeds if feed.endswith("attention_mask") and padding == "hole"]:
            feeds[mask][1, 2:4] = 0
        found = graph.run(feeds)
        for output, truth in outputs64(module, feeds).items():
            assert distance(found[output], truth) < 1e-9, (output, padding)


def test_a_long_prompt_goes_through_in_chunks(exported: Exported, fast: Fast) -> None:
    artifact = exported("llama3-8b", "step")
    proof = Proof(artifact.signature())
    assert proof(ir.load(artifact.model_path), fast("llama3-8b", "step")[0]) is None
    longest = max(feeds["input_ids"].shape[1] for _, feeds, _ in proof._truth)
    assert longest > gqa.LONG


def test_only_whole_layers_share_their_cache(fast: Fast) -> None:
    assert passes.aliases(fast("llama3-8b", "step")[0]) == {
        f"present.{layer}.{kind}": f"past_key_values.{layer}.{kind}" for layer in (0, 1) for kind in ("key", "value")
    }
    assert passes.aliases(fast("llama3-8b", "forward")[0]) == {}
    assert passes.aliases(fast("mistral-7b", "step")[0]) == {}


def test_portable_changes_nothing(exported: Exported) -> None:
    model = ir.load(exported("gpt2", "forward").model_path)
    before = ir.to_proto(model).SerializeToString()
    assert passes.apply(model, "portable") == []
    assert ir.to_proto(model).SerializeToString() == before
    assert passes.session("portable") == {}


def test_an_unknown_target_is_refused(exported: Exported) -> None:
    with pytest.raises(ValueError, match="'tpu' is none of portable, ort-cpu, ort-cuda"):
        passes.apply(ir.load(exported("gpt2", "forward").model_path), "tpu")


def test_a_proof_that_fails_rolls_the_pass_back(exported: Exported) -> None:
    model = ir.load(exported("gpt2", "forward").model_path)
    before = ir.to_proto(model).SerializeToString()
    notes = passes.apply(model, "ort-cpu", prove=lambda _, after: "logits differ" if _uses_kernels(after) else None)
    assert "causal: rolled back: logits differ" in notes
    assert ir.to_proto(model).SerializeToString() == before


def _uses_kernels(model: ir.Model) -> bool:
    return any(node.op_type == "GroupQueryAttention" for node in model.graph.all_nodes())


def test_an_old_onnx_runtime_gets_the_portable_graph(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "version", lambda wheel: "1.31.0")
    model = ir.load(exported("gpt2", "forward").model_path)
    (note,) = passes.apply(model, "ort-cpu")
    assert "need ONNX Runtime 1.32, here is 1.31.0" in note
    assert not _uses_kernels(model)


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


def test_without_attention_every_pass_says_why() -> None:
    model = ir.Model(graph("y = Relu (x)", "float[2] x", "float[2] y"), ir_version=10)
    notes = passes.apply(model, "ort-cpu")
    assert all("not applied: " in note for note in notes)
    assert np.all([note.count(":") == 2 for note in notes])


def test_a_shared_cache_gives_the_outputs_of_a_separate_one(exported: Exported, fast: Fast, tmp_path: Path) -> None:
    from dataclasses import replace

    from isorun.runtimes import all_runtimes

    model, _ = fast("llama3-8b", "step")
    ir.save(model, tmp_path / "model.onnx")
    artifact = replace(exported("llama3-8b", "step"), folder=tmp_path)
    feeds = artifact.signature().feeds({"batch": 3, "sequence": 2, "past": 5}, padding="left")
    runtime = all_runtimes()["ort-cpu"]
    apart, shared = (runtime.prepare(one, 1) for one in (artifact, replace(artifact, aliases=passes.aliases(model))))
    wanted = apart.fetch(apart.run(apart.stage(feeds)))
    staged = shared.stage(feeds)
    shared.run(staged)
    found = shared.fetch(shared.run(staged))  # a second step from the same past writes the same
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
