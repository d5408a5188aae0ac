"""The passes of a target: where they apply and where not, and that what they write is the same function."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from isorun.bench.proof import Proof
from isorun.export import passes
from isorun.export.passes import gqa, grouped
from isorun.runtimes.reference import Float64Graph

from .conftest import Exported, Fast

# Which operators are in the graph afterwards, counted with those of all branches: ten kernels a layer in branches of an
# If (whole, with bias, and 8 chunks), for one token an Attention and a row of keys and of values that is written, and
# nothing left of what they replace.
KINDS = {
    ("llama3-8b", "forward"): {"GroupQueryAttention": 2 * 10, "RotaryEmbedding": 4, "Attention": 0},
    ("llama3-8b", "step"): {
        "GroupQueryAttention": 2 * 10,
        "ScatterElements": 2 * 2,
        "RotaryEmbedding": 4,
        "Attention": 2,
    },
    ("gpt2", "step"): {"GroupQueryAttention": 2 * 10, "Attention": 0},
    ("bert-base", "forward"): {"MultiHeadAttention": 2, "Attention": 0},
    ("transformer-base", "forward"): {"MultiHeadAttention": 4, "GroupQueryAttention": 2 * 10, "Attention": 0},
    ("transformer-base", "step"): {"MultiHeadAttention": 2, "GroupQueryAttention": 2 * 10, "Attention": 0},
    ("mistral-7b", "step"): {"Attention": 2, "RotaryEmbedding": 4, "GroupQueryAttention": 0},
    ("lstm", "forward"): {"Attention": 0, "GroupQueryAttention": 0},
    # Rows of blocks under one mask are no rows of a batch.
    ("gpt3-small", "forward"): {"GroupQueryAttention": 10, "Attention": 1},
    ("bigbird-base", "forward"): {"MultiHeadAttention": 2, "Attention": 2},
}


@pytest.mark.parametrize(("name", "phase"), KINDS)
def test_passes_write_these_operators(fast: Fast, name: str, phase: str) -> None:
    model, notes = fast(name, phase)
    found = Counter(node.op_type for node in model.graph.all_nodes())
    assert {kind: found[kind] for kind in KINDS[name, phase]} == KINDS[name, phase]
    assert [note.split(":")[0] for note in notes] == ["decomposed", "rotary", "causal", "bidirectional", "layout"]


@pytest.mark.parametrize(("name", "phase"), KINDS)
def test_the_rewritten_graph_is_the_source(exported: Exported, fast: Fast, name: str, phase: str) -> None:
    """Against torch in float64, where padding lies left, right and in a hole, and a past is empty or not."""
    from isorun.bench.truth import distance
    from isorun.export.outputs import outputs64

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


@pytest.mark.parametrize("past", [3, 4, 5, 6, 7, 8])
def test_one_token_after_a_short_and_a_long_past(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, past: int
) -> None:
    """The kernel for few keys, groups as rows for more, the kernel again: at every limit the step is the same."""
    artifact = exported("llama3-8b", "step")
    feeds = artifact.signature().feeds({"batch": 2, "sequence": 1, "past": past})
    width = feeds["past_key_values.0.key"][0, :, 0].size
    monkeypatch.setattr(grouped, "WORTH", 5 * width)
    monkeypatch.setattr(grouped, "FITS", 8 * width)  # 7 past tokens and a new one
    model = ir.load(artifact.model_path)
    passes.apply(model, "ort-cpu")
    truth = Float64Graph(artifact.model_path).run(feeds)
    found = Float64Graph(ir.to_proto(model)).run(feeds)
    for name, array in truth.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-12, err_msg=name)


def test_a_proof_has_steps_on_both_sides_of_the_least_past_for_groups_as_rows(exported: Exported) -> None:
    artifact = exported("llama3-8b", "step")
    shapes = [sizes for sizes, _ in Proof(artifact.signature())._shapes() if sizes["sequence"] == 1]
    least = grouped.WORTH // (2 * 8)  # key heads and their width
    assert {least - 1, least} <= {sizes["past"] for sizes in shapes}


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


def test_without_attention_every_pass_says_why() -> None:
    text = '<ir_version: 10, opset_import: ["" : 23]> graph (float[2] x) => (float[2] y) { y = Relu (x) }'
    model = ir.from_proto(parser.parse_model(text))
    notes = passes.apply(model, "ort-cpu")
    assert all("not applied: " in note for note in notes)
    assert np.all([note.count(":") == 2 for note in notes])
