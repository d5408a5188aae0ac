"""Sparse mixers are linear in the number of tokens by the operations that torch counts; attention to all is not.

Their time is measured by tests/benchmarks/test_sparse.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from isorun.models.attention import Softmax
from isorun.models.bigbird import BigBird
from isorun.models.config import Mixer, ModelConfig
from isorun.models.longformer import Longformer
from isorun.models.position import NoPosition
from isorun.models.presets import PRESETS
from isorun.models.window import Window

from .scaling import LENGTHS, call, counted, exponent

MIXERS: dict[str, tuple[str, Mixer]] = {
    "longformer": ("bert-base", Longformer(window=64)),
    "bigbird": ("bert-base", BigBird(block=16, random=3)),
    "window": ("gpt2", Window(window=64)),
}


def config(preset: str, mixer: Mixer) -> ModelConfig:
    return replace(PRESETS[preset].at("tiny").scaled(dim=24, heads=6), position=NoPosition(), mixer=mixer)


@pytest.mark.parametrize("name", MIXERS)
def test_operations_are_linear(name: str) -> None:
    preset, mixer = MIXERS[name]
    run = call(config(preset, mixer), causal=preset == "gpt2")
    assert exponent(LENGTHS, [counted(run, n) for n in LENGTHS]) == pytest.approx(1, abs=0.01)


def test_attention_to_all_keys_is_not() -> None:
    """Counted alike: what a slope of 1 tells apart."""
    run = call(config("bert-base", Softmax()))
    assert exponent(LENGTHS[:3], [counted(run, n) for n in LENGTHS[:3]]) > 1.8
