"""Biases by distance: ALiBi's slopes and sums, T5's buckets, and what both promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

from isorun.models.attention import Softmax
from isorun.models.config import ConfigError
from isorun.models.presets import PRESETS
from isorun.models.relative import RelativeBias, bucket_of_distance, slopes
from isorun.models.transformer import build
from isorun.models.window import Window

from .plain import array, left_padded

BLOOM = PRESETS["bloom-560m"].at("tiny")
T5 = PRESETS["t5-small"].at("tiny")


def states(batch: int, tokens: int) -> torch.Tensor:
    return torch.zeros(batch, tokens, BLOOM.dim, dtype=torch.float64)


def alibi(mask: np.ndarray, tokens: int) -> np.ndarray:
    encoding = BLOOM.position.build(BLOOM).double()
    found: np.ndarray = array(encoding.bias(states(len(mask), tokens), torch.from_numpy(mask), causal=True))
    return found


# ALiBi


@pytest.mark.parametrize(
    ("heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes_are_the_published_powers_of_a_half(heads: int, exponents: list[float]) -> None:
    assert slopes(heads) == [2.0**-exponent for exponent in exponents]


def test_a_bias_is_minus_slope_times_distance() -> None:
    """The figure of the paper, for new tokens after a past of three."""
    found = alibi(np.ones((1, 7), np.int64), 4)
    assert found.shape == (1, 8, 4, 7)
    for head in range(8):
        for i in range(4):
            for j in range(3 + i + 1):
                assert found[0, head, i, j] == -(2.0 ** -(head + 1)) * (3 + i - j)


def test_distances_count_real_tokens() -> None:
    """A hole in the mask takes no distance, as in BLOOM; at the sides it makes no difference."""
    whole = alibi(np.ones((1, 5), np.int64), 5)[0]
    hole = alibi(np.array([[1, 1, 0, 0, 1, 1, 1]]), 7)[0]
    real = [0, 1, 4, 5, 6]
    assert np.array_equal(hole[:, real][:, :, real], whole)
    padded = alibi(left_padded([5, 3]), 5)
    assert np.array_equal(padded[1, :, 2:, 2:], whole[:, 2:, 2:])


def test_near_keys_have_small_biases_at_any_length() -> None:
    """BLOOM's own form grows with the position, and float32 with it loses the difference between two keys."""
    found = alibi(np.ones((1, 100_001), np.int64), 1)
    assert found[0, 0, 0, -3:].tolist() == [-1.0, -0.5, 0.0]


# T5


@pytest.mark.parametrize("buckets", [8, 16, 32, 64])
@pytest.mark.parametrize("far", [40, 100, 128, 1000])
def test_buckets_are_those_of_mesh_tensorflow(buckets: int, far: int) -> None:
    relative = torch.arange(-1500, 1501)
    theirs = T5Attention._relative_position_bucket(relative, False, buckets, far)
    past = bucket_of_distance(buckets, far)
    assert [past[min(max(-j, 0), far)] for j in relative.tolist()] == theirs.tolist()
    theirs = T5Attention._relative_position_bucket(relative, True, buckets, far)
    half = bucket_of_distance(buckets // 2, far)
    assert [(j > 0) * buckets // 2 + half[min(abs(j), far)] for j in relative.tolist()] == theirs.tolist()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("past", "tokens"), [(0, 1), (0, 300), (200, 1), (150, 7)])
def test_a_bias_is_the_table_at_the_bucket(past: int, tokens: int, causal: bool) -> None:
    encoding = T5.position.build(T5).double().requires_grad_(False)
    mask = torch.ones(2, past + tokens, dtype=torch.int64)
    found = array(encoding.bias(states(2, tokens), mask, causal=causal))
    assert found.shape == (1, 8, tokens, past + tokens)
    relative = torch.arange(past + tokens) - (past + torch.arange(tokens))[:, None]
    expected = array(encoding.table.weight)[
        T5Attention._relative_position_bucket(relative, not causal, 32, 128).numpy()
    ]
    assert np.array_equal(found[0], np.moveaxis(expected, -1, 0))


def test_a_stack_has_one_table_and_cross_attention_has_none() -> None:
    with torch.device("meta"):
        names = [name for name, _ in build(PRESETS["t5-base"]).named_parameters() if "table" in name]
    assert names == ["encoder.position.table.weight", "decoder.position.table.weight"]


# Refusals

REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "ALiBi and a window": (BLOOM, {"mixer": Window(window=4)}, "Window.* takes no bias"),
    "T5's bias and bent scores": (T5, {"mixer": Softmax(softcap=30.0)}, "softcap=30.0.* takes no bias"),
    "ALiBi both ways": (BLOOM, {"topology": "encoder"}, "no rule for an encoder"),
    "half a bucket": (T5, {"position": RelativeBias(buckets=6)}, "6 buckets"),
    "more buckets than distances": (T5, {"position": RelativeBias(32, 16)}, "max_distance 16 .* 32 buckets"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_impossible_combination_is_refused(case: str) -> None:
    config, changes, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        replace(config, **changes)
