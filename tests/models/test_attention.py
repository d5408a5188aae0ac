"""Attention layers against masked attention over all keys in plain NumPy, float64; what blocks may skip."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from isorun.models.attention import Attention, Softmax
from isorun.models.config import ModelConfig
from isorun.models.position import NoPosition
from isorun.models.presets import PRESETS
from isorun.models.window import Window, block_sizes

from .plain import Array, array, attention, causal, distance, left_padded, linear, merge, randomise, split

EQUAL = 1e-12
BATCH, HEADS, HEAD_DIM, PADDING = 3, 6, 4, [0, 1, 4]
CONFIG = replace(
    PRESETS["gpt2"].at("tiny").scaled(dim=HEADS * HEAD_DIM, heads=HEADS, context=1024), position=NoPosition()
)


def config(kv_heads: int | None, window: int | None) -> ModelConfig:
    mixer = Softmax(kv_heads=kv_heads) if window is None else Window(window=window, kv_heads=kv_heads)
    return replace(CONFIG, mixer=mixer)


@cache
def layer(kv_heads: int | None, window: int | None, is_causal: bool = True) -> Attention:
    built = config(kv_heads, window)
    result = randomise(built.mixer.build(built, causal=is_causal))
    assert isinstance(result, Attention)
    return result.requires_grad_(False)


def draw(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def padded(keys: int) -> NDArray[np.int64]:
    """A mask (B, keys) that loses 0, 1 and 4 keys on the left; where there are fewer, a row is padding alone."""
    return (np.arange(keys) >= np.array(PADDING)[:, None]).astype(np.int64)


def plain(module: Attention, x: Array, past: tuple[Array, Array], allowed: NDArray[np.bool_]) -> Array:
    """The whole layer: project, attend to all keys under the mask, project."""
    q, k, v = (split(linear(x, part), HEAD_DIM) for part in (module.q, module.k, module.v))
    k, v = np.concatenate((past[0], k), 2), np.concatenate((past[1], v), 2)
    return linear(merge(attention(q, k, v, allowed)), module.o)


def ours(module: Attention, x: Array, past: tuple[Array, Array], mask: NDArray[np.int64]) -> tuple[Array, list[Array]]:
    plan = module.plan(torch.from_numpy(mask), x.shape[1])
    cache = tuple(map(torch.from_numpy, past))
    y, present = module(torch.from_numpy(x), plan, lambda rotated: rotated, cache)
    return array(y), [array(tensor) for tensor in present]


def drawn_past(kv_heads: int | None, past: int) -> tuple[Array, Array]:
    shape = (BATCH, kv_heads or HEADS, past, HEAD_DIM)
    return draw(1, *shape), draw(2, *shape)


@pytest.mark.parametrize("kv_heads", [None, 2, 1])
@pytest.mark.parametrize("window", [5, 64])
def test_every_length_of_a_window(window: int, kv_heads: int | None) -> None:
    """n from 1 to three windows and two. The first n rows of a causal result are the result at n: one run is enough."""
    module, longest = layer(kv_heads, window), 3 * window + 2
    for past_tokens in (0, 1, window - 1, window, 2 * window + 3):
        x, past = draw(3, BATCH, longest, HEADS * HEAD_DIM), drawn_past(kv_heads, past_tokens)
        mask = padded(past_tokens + longest)
        expected = plain(module, x, past, causal(mask, longest, window))
        for n in range(1, longest + 1) if kv_heads == 2 else (1, 2, window - 1, window, window + 1, longest):
            y, _ = ours(module, x[:, :n], past, mask[:, : past_tokens + n])
            assert distance(y, expected[:, :n]) < EQUAL, (past_tokens, n)


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("kv_heads", [None, 6, 3, 2, 1])
@pytest.mark.parametrize("past_tokens", [0, 1, 7])
def test_groups(kv_heads: int | None, window: int | None, past_tokens: int) -> None:
    module, past = layer(kv_heads, window), drawn_past(kv_heads, past_tokens)
    for n in (1, 2, 13):
        x, mask = draw(4, BATCH, n, HEADS * HEAD_DIM), padded(past_tokens + n)
        y, present = ours(module, x, past, mask)
        assert distance(y, plain(module, x, past, causal(mask, n, window))) < EQUAL
        for kept, old, part in zip(present, past, (module.k, module.v), strict=True):
            assert distance(kept, np.concatenate((old, split(linear(x, part), HEAD_DIM)), 2)) < EQUAL


@pytest.mark.parametrize("kv_heads", [None, 2, 1])
@pytest.mark.parametrize("n", [1, 2, 13])
def test_both_ways(kv_heads: int | None, n: int) -> None:
    module = layer(kv_heads, None, is_causal=False)
    x, mask = draw(5, BATCH, n, HEADS * HEAD_DIM), left_padded([n, max(1, n - 1), max(1, n - 4)])
    allowed = np.broadcast_to(mask[:, None, None, :] > 0, (BATCH, 1, n, n))
    y, _ = ours(module, x, drawn_past(kv_heads, 0), mask)
    assert distance(y, plain(module, x, drawn_past(kv_heads, 0), allowed)) < EQUAL


def test_a_row_of_padding_alone_is_finite() -> None:
    """A causal token sees itself, so nothing depends on what a runtime makes of an empty softmax."""
    for window in (None, 5):
        module, x = layer(None, window), draw(6, BATCH, 9, HEADS * HEAD_DIM)
        y, _ = ours(module, x, drawn_past(None, 0), np.zeros((BATCH, 9), np.int64))
        assert distance(y, linear(linear(x, module.v), module.o)) < EQUAL  # each token is its own only key


def test_a_window_off_by_one_is_seen() -> None:
    """What the comparisons above are worth: a key too many or too few moves the result far beyond their tolerance."""
    x, past, mask = draw(7, BATCH, 17, HEADS * HEAD_DIM), drawn_past(2, 0), np.ones((BATCH, 17), np.int64)
    y, _ = ours(layer(2, 5), x, past, mask)
    for wrong in (4, 6):
        assert distance(y, plain(layer(2, 5), x, past, causal(mask, 17, wrong))) > 1e-3


@pytest.mark.parametrize("window", [1, 2, 5, 64])
def test_blocks_hold_all_that_a_query_sees(window: int) -> None:
    for past in (0, 1, window - 1, window, 2 * window + 3):
        for tokens in range(1, 3 * window + 3):
            blocks, block, context = block_sizes(tokens, past, window)
            assert block <= window
            assert (blocks - 1) * block < tokens <= blocks * block  # every token has a place, and no block is idle
            for first in range(past, past + blocks * block, block):  # the first query of a block
                assert first - context <= max(0, first - window + 1)  # reaches the oldest key that it sees
            assert context < window  # and no block reads more than a window before itself
            assert past + (blocks - 1) * block - context >= 0  # the last one nothing before the start


@pytest.mark.parametrize("past", [0, 3, 4095, 4096, 100_000])
def test_a_step_reads_what_is_there(past: int) -> None:
    assert block_sizes(1, past, 4096) == (1, 1, min(past, 4095))


def test_work_grows_with_the_length_and_not_with_its_square() -> None:
    def scores(tokens: int) -> int:
        blocks, block, context = block_sizes(tokens, 0, 64)
        return blocks * block * (context + block)

    assert scores(64) == 64 * 64
    assert scores(6400) == 6400 * (2 * 64 - 1)
    assert scores(12_800) == 2 * scores(6400)
