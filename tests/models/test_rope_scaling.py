"""RoPE scaling against transformers' own functions in float64, and what the rules promise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from isorun.models.config import ConfigError
from isorun.models.hf_rope import hf_rope
from isorun.models.position import Rope
from isorun.models.presets import PRESETS
from isorun.models.rope_scaling import NTK, DynamicNTK, Linear, Llama3, LongRope, RopeScaling, Yarn

from .plain import array, distance, frequencies
from .theirs import Float64

EXACT = 1e-14
DIM, BASE = 64, 10_000.0  # the size of a head that turns
SHORT = tuple(1 + i / 50 for i in range(DIM // 2))
LONG = tuple(1 + i for i in range(DIM // 2))
LLAMA = PRESETS["llama3-8b"].at("tiny").scaled(dim=2 * DIM, heads=2)

YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256}
DEEPSEEK = {**YARN, "factor": 40.0, "mscale": 0.7, "mscale_all_dim": 0.9}
LONGROPE = {"rope_type": "longrope", "short_factor": list(SHORT), "long_factor": list(LONG)}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
THEIRS: dict[str, tuple[RopeScaling, dict[str, Any]]] = {
    "linear": (Linear(4.0), {"rope_type": "linear", "factor": 4.0}),
    "dynamic": (DynamicNTK(2.0, 2048), {"rope_type": "dynamic", "factor": 2.0}),
    "yarn": (Yarn(8.0, 256), YARN),
    "yarn, other ramp": (Yarn(8.0, 256, fast=16, slow=2), {**YARN, "beta_fast": 16, "beta_slow": 2}),
    "yarn, a ramp between pairs": (Yarn(8.0, 256, truncate=False), {**YARN, "truncate": False}),
    "yarn, its own temperature": (Yarn(8.0, 256, attention=1.5), {**YARN, "attention_factor": 1.5}),
    "yarn of DeepSeek": (
        Yarn(40.0, 256, attention=(0.07 * math.log(40) + 1) / (0.09 * math.log(40) + 1)), DEEPSEEK,
    ),
    "llama3": (Llama3(8.0, 512), {**LLAMA3, "factor": 8.0, "original_max_position_embeddings": 512}),
    "llama3, other ramp": (
        Llama3(32.0, 1024, low=2, high=3),
        {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 1024, "low_freq_factor": 2,
         "high_freq_factor": 3},
    ),
    "longrope": (LongRope(SHORT, LONG, 4.0, 512), {**LONGROPE, "original_max_position_embeddings": 512}),
    "longrope, its own temperature": (
        LongRope(SHORT, LONG, 4.0, 512, attention=1.25),
        {**LONGROPE, "original_max_position_embeddings": 512, "factor": 4.0, "attention_factor": 1.25},
    ),
}  # fmt: skip


def config(rope: dict[str, Any]) -> LlamaConfig:
    sizes = {"hidden_size": 2 * DIM, "num_attention_heads": 2, "vocab_size": 3, "max_position_embeddings": 2048}
    return LlamaConfig(**sizes, rope_parameters={"rope_theta": BASE, **rope})


@pytest.mark.parametrize("case", THEIRS)
@pytest.mark.parametrize("tokens", [1, 512, 513, 2048, 2049, 5000])
def test_frequencies_and_temperature_are_theirs(case: str, tokens: int) -> None:
    ours, rope = THEIRS[case]
    theirs = config(rope)
    with Float64():
        expected, temperature = ROPE_INIT_FUNCTIONS[rope["rope_type"]](theirs, seq_len=tokens)
    assert expected.dtype == torch.float64
    rates = ours.rates(ours.table(DIM, BASE), torch.arange(tokens)[None]).reshape(-1)
    assert np.abs(array(rates) / array(expected) - 1).max() < EXACT
    assert math.isclose(ours.temperature, temperature, rel_tol=EXACT)


@pytest.mark.parametrize("case", THEIRS)
def test_a_config_json_says_the_same(case: str) -> None:
    """As version 5 writes it, and as the older files on the hub have it."""
    ours, rope = THEIRS[case]
    found = hf_rope(config(rope).to_dict())
    assert math.isclose(found.scaling.temperature, ours.temperature, rel_tol=EXACT)
    assert found.base == BASE
    same = replace(found.scaling, attention=ours.attention) if hasattr(ours, "attention") else found.scaling
    assert same == ours
    old = {"max_position_embeddings": 2048, "rope_theta": 77.0, "rope_scaling": {**rope, "type": rope["rope_type"]}}
    del old["rope_scaling"]["rope_type"]
    assert hf_rope(old) == replace(found, base=77.0)


def test_phi_keeps_the_trained_length_beside_the_scaling() -> None:
    hf = {"max_position_embeddings": 4096, "original_max_position_embeddings": 512, "rope_scaling": LONGROPE}
    assert hf_rope(hf).scaling == LongRope(SHORT, LONG, 8.0, 512)


def test_an_unknown_scaling_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'proportional' is none of default, linear, dynamic, yarn, llama3"):
        hf_rope({"max_position_embeddings": 64, "rope_parameters": {"rope_type": "proportional"}})


@pytest.mark.parametrize("alpha", [1.0, 2.0, 8.0])
def test_ntk_keeps_the_fastest_pair_and_slows_the_slowest_by_alpha(alpha: float) -> None:
    plain, scaled = frequencies(DIM, BASE), array(NTK(alpha).table(DIM, BASE))
    assert scaled[0] == plain[0] == 1.0
    assert np.isclose(plain[-1] / scaled[-1], alpha, rtol=1e-12)
    assert distance(scaled, frequencies(DIM, BASE * alpha ** (DIM / (DIM - 2)))) < EXACT


def test_dynamic_ntk_is_ntk_for_the_length_there_is() -> None:
    dynamic = DynamicNTK(2.0, 100)
    for tokens, alpha in ((1, 1), (100, 1), (101, 2 * 1.01 - 1), (400, 7)):
        rates = dynamic.rates(dynamic.table(DIM, BASE), torch.arange(tokens)[None])
        assert np.abs(array(rates.flatten()) / array(NTK(alpha).table(DIM, BASE)) - 1).max() < EXACT


@pytest.mark.parametrize("scaling", [DynamicNTK(2.0, 10), LongRope(SHORT, LONG, 4.0, 10)], ids=["dynamic", "longrope"])
def test_each_row_has_its_own_length(scaling: RopeScaling) -> None:
    rates = scaling.rates(scaling.table(DIM, BASE), torch.tensor([[0, 1, 2], [18, 19, 20], [0, 0, 30]]))
    assert rates.shape == (3, 1, 1, DIM // 2)
    alone = [scaling.rates(scaling.table(DIM, BASE), torch.tensor([[last]])) for last in (2, 20, 30)]
    assert torch.equal(rates, torch.cat(alone))
    assert rates[0, 0, 0, -1] > rates[1, 0, 0, -1]


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
def test_only_the_first_part_of_a_head_turns(layout: str, fraction: float) -> None:
    """Pairs as complex numbers, temperature included; the rest passes."""
    scaling, size, tokens = Yarn(8.0, 256), int(DIM * fraction), 40
    rope = Rope(BASE, layout, fraction, scaling)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, tokens, DIM, dtype=torch.float64, generator=generator)
    encoding = rope.build(LLAMA).double()
    found = array(encoding.rotation(torch.arange(tokens).expand(2, -1))(x))
    part = array(x)[..., :size]
    pairs = part.reshape(*part.shape[:-1], *((2, -1) if layout == "half" else (-1, 2)))
    pairs = pairs if layout == "interleaved" else pairs.swapaxes(-1, -2)
    rates = array(scaling.table(size, BASE).float().double())
    turn = np.exp(1j * np.arange(tokens)[:, None] * rates) * np.float64(np.float32(scaling.temperature))
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * turn
    stacked = np.stack((turned.real, turned.imag), -2 if layout == "half" else -1).reshape(part.shape)
    assert distance(found[..., :size], stacked) < 1e-13
    assert np.array_equal(found[..., size:], array(x)[..., size:])


def test_scores_of_scaled_positions_depend_on_the_offset_alone() -> None:
    q, k = torch.randn(2, 1, 1, 1, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).expand(
        2, 1, 1, 300, -1
    )
    rotate = Rope(scaling=Yarn(8.0, 256)).build(LLAMA).double().rotation(torch.arange(300)[None])
    scores = array(rotate(q) @ rotate(k).mT)[0, 0]
    assert all(np.ptp(np.diagonal(scores, offset)) < 1e-11 for offset in (0, 3, -40))


REFUSED = {
    "part of a pair": (Rope(fraction=1 / 64), "rotary size 1"),
    "nothing turns": (Rope(fraction=0.0), "rotary size 0"),
    "more than a head": (Rope(fraction=1.5), "rotary size 96"),
    "odd": (Rope(fraction=5 / 64), "rotary size 5"),
    "shrinking": (Rope(scaling=Linear(0.5)), "factor 0.5 is below 1"),
    "shrinking NTK": (Rope(scaling=NTK(0.5)), "alpha 0.5 is below 1"),
    "one pair": (Rope(fraction=2 / 64, scaling=NTK(2.0)), "rotary size is 2"),
    "one pair, dynamic": (Rope(fraction=2 / 64, scaling=DynamicNTK(2.0, 8)), "rotary size is 2"),
    "no length": (Rope(scaling=DynamicNTK(2.0, 0)), "original 0"),
    "ramp of YaRN": (Rope(scaling=Yarn(2.0, 64, fast=1, slow=1)), "fast 1 is not above its slow 1"),
    "ramp of Llama 3": (Rope(scaling=Llama3(2.0, 64, low=4, high=4)), "high 4 is not above its low 4"),
    "factors": (Rope(scaling=LongRope(SHORT, LONG[1:], 2.0, 64)), "long has 31 factors for 32 pairs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_impossible_encoding_is_refused(case: str) -> None:
    position, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        replace(LLAMA, position=position)
