"""Planted faults: every kind can be planted somewhere, changes the graph and leaves it readable; a sample is found.

The whole table, every kind on every preset, is made by `isorun mutate` and kept in docs/mutations.md.
"""

from __future__ import annotations

import onnx
import pytest

from isorun.bench import certificate, mutations
from isorun.bench.certificate import certify

from ..conftest import GRAPHS, Exported

SAMPLE = {
    ("gpt2", "forward"): ["one element off by 1 %", "GELU of the other kind", "epsilon ten times smaller"],
    ("mistral-7b", "step"): ["window off by one", "positions ignore padding", "KV heads tiled", "past forgotten"],
    ("lstm", "step"): ["LSTM gates in another order", "padding mask ignored", "rows see each other", "length baked in"],
    ("bert-base", "forward"): ["token types ignored", "norm keeps the mean", "result through float16", "bias negated"],
}


@pytest.mark.parametrize("place", SAMPLE, ids=" ".join)
def test_validation_finds_what_was_planted(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, place: tuple[str, str]
) -> None:
    known = mutations.kinds()
    monkeypatch.setattr(certificate.mutations, "kinds", lambda: {kind: known[kind] for kind in SAMPLE[place]})
    mutants = {mutant.kind: mutant for mutant in certify(exported(*place).folder)}
    assert list(mutants) == SAMPLE[place]
    assert [kind for kind, mutant in mutants.items() if not mutant.found] == []
    for kind, mutant in mutants.items():
        assert mutant.equivalent == (kind == "result through float16"), "float64 does not see a rounding"
        assert mutant.named in (["none"] if mutant.equivalent else ["node", "operator"]), kind


def test_an_unmutated_graph_is_equivalent_and_nothing_is_found(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate.mutations, "kinds", lambda: {"nothing": ""})
    monkeypatch.setattr(certificate.mutations, "apply", lambda kind, model, seed: model)
    (mutant,) = certify(exported("mistral-7b", "step").folder)
    assert mutant.equivalent
    assert not mutant.found
    assert mutant.named == "none"
    assert mutant.usual == (False, False, False)


def test_usual_checks_miss_what_validation_finds(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    known = mutations.kinds()
    monkeypatch.setattr(certificate.mutations, "kinds", lambda: {"result scaled": known["result scaled"]})
    (mutant,) = certify(exported("gpt2", "forward").folder)
    assert mutant.found
    assert mutant.usual == (False, True, True)  # 0.1 % passes at 1e-3


def test_every_kind_has_a_place_in_the_zoo_and_leaves_a_graph(exported: Exported) -> None:
    unplanted = set(mutations.kinds())
    for name, phase in GRAPHS:
        model = onnx.load(exported(name, phase).model_path)
        for kind in sorted(unplanted):
            mutant = mutations.apply(kind, model)
            if mutant is not None:
                assert mutant.SerializeToString() != model.SerializeToString(), kind
                onnx.checker.check_model(mutant)
                unplanted.discard(kind)
    assert len(mutations.kinds()) >= 40
    assert unplanted == set()


def test_what_a_fault_touched(exported: Exported) -> None:
    model = onnx.load(exported("gpt2", "forward").model_path)
    mutations.kinds()
    softer = mutations.apply("scale wrong", model)
    other = mutations.apply("last id lost", model)
    weight = mutations.apply("matrix negated", model)
    assert softer is not None
    assert other is not None
    assert weight is not None
    assert mutations.touched(model, model) == frozenset()
    (name,) = mutations.touched(model, softer)
    assert name.startswith("scaled_dot_product_attention")
    assert any(name.startswith("planted") for name in mutations.touched(model, other))
    kinds = {node.op_type for node in weight.graph.node if mutations.touched(model, weight).intersection(node.output)}
    assert kinds == {"MatMul"}


def test_planting_leaves_the_original_alone_and_follows_the_seed(exported: Exported) -> None:
    model = onnx.load(exported("gpt2", "forward").model_path)
    before = model.SerializeToString()
    mutations.kinds()
    first, again, other = (mutations.apply("matrix one row off", model, seed) for seed in (0, 0, 1))
    assert model.SerializeToString() == before
    assert first is not None
    assert again is not None
    assert other is not None
    assert first.SerializeToString() == again.SerializeToString() != other.SerializeToString()
