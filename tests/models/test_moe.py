"""Mixture of experts, token by token and expert by expert in NumPy: only the chosen ones are computed there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from isorun.models.config import ConfigError, ModelConfig
from isorun.models.moe import MoE
from isorun.models.presets import PRESETS
from isorun.models.transformer import build

from .plain import Array, array, distance, linear, softmax

EQUAL = 1e-12
BASE = PRESETS["mixtral-8x7b"].at("tiny")
HIDDEN = 24


def config(**options: object) -> ModelConfig:
    moe = MoE(**{"activation": "silu", "hidden": HIDDEN, "experts": 5, "top_k": 2, **options})  # type: ignore[arg-type]
    return replace(BASE, layers=1, ffn=moe)


def layer(of: ModelConfig) -> nn.Module:
    return build(of).double().stack.layers[0].ffn


def glu(x: Array, gate: Array, up: Array, down: Array) -> Array:
    g = x @ gate.T
    result: Array = (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T
    return result


def routed(x: Array, moe: nn.Module, spec: MoE) -> Array:
    """One token (dim): the experts of the highest scores, one after another."""
    scores = linear(x, moe.router)
    chosen = sorted(range(spec.experts), key=lambda e: -scores[e])[: spec.top_k]
    gates = softmax(scores[chosen]) if spec.renormalise else softmax(scores)[chosen]
    y = np.zeros_like(x)
    for expert, gate in zip(chosen, gates, strict=True):
        rows = slice(expert * spec.hidden, (expert + 1) * spec.hidden)
        e = moe.experts
        y += gate * glu(x, array(e.gate.weight)[rows], array(e.up.weight)[rows], array(e.down.weight)[:, rows])
    if spec.shared:
        y += glu(x, *(array(part.weight) for part in (moe.shared.gate, moe.shared.up, moe.shared.down)))
    return y


CASES = {
    "two of five": {},
    "one of five": {"top_k": 1},
    "all": {"top_k": 5},
    "one expert": {"experts": 1, "top_k": 1},
    "the largest of a softmax over all": {"renormalise": False},
    "shared experts": {"shared": 2, "renormalise": False, "experts": 9, "top_k": 6},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7)], ids=str)
def test_routing(case: str, shape: tuple[int, int]) -> None:
    of = config(**CASES[case])
    moe, spec = layer(of), of.ffns[0]
    x = np.random.default_rng(0).standard_normal((*shape, of.dim))
    expected = np.stack([[routed(token, moe, spec) for token in row] for row in x])
    assert distance(moe(torch.from_numpy(x)), expected) < EQUAL


def test_an_expert_that_is_not_chosen_changes_nothing() -> None:
    moe = layer(config(experts=3, top_k=1))
    x = torch.randn(2, 9, BASE.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    chosen = moe.router(x).argmax(-1)
    before = moe(x)
    moe.experts.down.weight[:, :HIDDEN] += 1.0  # expert 0
    changed = (moe(x) != before).any(-1)
    assert torch.equal(changed, chosen == 0)
    assert 0 < changed.sum() < changed.numel()


IMPOSSIBLE = {
    "more chosen than there are": ({"top_k": 6}, ("top_k 6", "experts 5")),
    "none chosen": ({"top_k": 0}, ("top_k 0", "experts 5")),
    "fewer than no shared experts": ({"shared": -1}, ("shared experts -1", "below 0")),
    "empty experts": ({"hidden": 0}, ("hidden size 0", "below 1")),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_refused_at_construction_with_the_values(case: str) -> None:
    options, words = IMPOSSIBLE[case]
    with pytest.raises(ConfigError) as refusal:
        config(**options)
    for word in ("mixtral-8x7b", *words):
        assert word in str(refusal.value)
