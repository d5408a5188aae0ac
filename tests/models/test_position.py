"""Positions against their formulas in float64, and what the formulas promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from isorun.models.position import Learned, PositionEncoding, Rope, Sinusoidal
from isorun.models.presets import PRESETS

from .plain import Array, array, distance, float32, frequencies, randomise, sinusoids

EXACT = 1e-12
CONFIG = PRESETS["gpt2"].at("tiny").scaled(dim=128, heads=2)  # head_dim 64
DIM, HEAD_DIM = CONFIG.dim, CONFIG.head_dim
TOKENS = 300


def encoding(position: Rope | Sinusoidal | Learned) -> PositionEncoding:
    return position.build(CONFIG).double().requires_grad_(False)


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


# Sinusoidal


def table(positions: Tensor, base: float = 10_000.0) -> Array:
    return array(encoding(Sinusoidal(base))(torch.zeros(*positions.shape, DIM, dtype=torch.float64), positions))


@pytest.mark.parametrize("base", [10_000.0, 100.0])
def test_sinusoids_are_those_of_the_formula(base: float) -> None:
    positions = torch.tensor([[0, 1, 2, 5000], [3, 77, 0, 511]])
    exact = frequencies(DIM, base)
    got = table(positions, base)
    assert distance(got, sinusoids(positions.numpy(), float32(exact))) < EXACT
    # Frequencies are kept in float32, so an angle is off by half a unit in its last place and no more.
    angles = positions.numpy()[..., None] * np.repeat(exact, 2)
    assert (np.abs(got - sinusoids(positions.numpy(), exact)) <= angles * 2.0**-24 + EXACT).all()


def test_the_first_pair_is_the_fastest() -> None:
    """The wavelength of the first pair is 2π, that of the last almost 2π·base."""
    wave = table(torch.arange(3)[None])[0]
    assert np.allclose(wave[1, :2], [np.sin(1), np.cos(1)], rtol=0, atol=EXACT)
    slowest = 10_000.0 ** (-(DIM - 2) / DIM)
    assert np.allclose(wave[1, -2:], [np.sin(slowest), np.cos(slowest)], rtol=0, atol=1e-10)


def test_sinusoids_are_added() -> None:
    x, positions = draw(2, 5, DIM), torch.arange(5).expand(2, 5)
    assert distance(encoding(Sinusoidal())(x, positions), array(x) + table(positions)) < EXACT


@pytest.mark.parametrize("offset", [0, 1, 7, 100])
def test_the_product_of_two_sinusoids_depends_on_their_offset(offset: int) -> None:
    wave = table(torch.arange(TOKENS)[None])[0]
    products = (wave[: TOKENS - offset] * wave[offset:]).sum(-1)
    assert np.ptp(products) < EXACT * DIM
    assert np.isclose(products[0], np.cos(offset * float32(frequencies(DIM, 10_000.0))).sum(), rtol=0, atol=1e-11)


# Learned


def test_a_learned_table_is_looked_up_and_ends() -> None:
    learned = encoding(Learned())
    x, positions = draw(1, 3, DIM), torch.tensor([[5, 0, CONFIG.context - 1]])
    rows = array(learned.table.weight)[[5, 0, CONFIG.context - 1]]
    assert distance(learned(x, positions), array(x) + rows) < EXACT
    with pytest.raises(IndexError):
        learned(x, positions + 1)


# Rotary


LAYOUTS = ("half", "interleaved")
SPLIT = np.concatenate((np.arange(0, HEAD_DIM, 2), np.arange(1, HEAD_DIM, 2)))  # interleaved → half


def turned(x: Tensor, layout: str, first: int = 0) -> Tensor:
    """x (B, heads, m, head_dim) at positions first, first + 1, …"""
    positions = torch.arange(first, first + x.shape[2]).expand(x.shape[0], -1)
    return encoding(Rope(layout=layout)).rotation(positions)(x)


def mixture(x: Tensor, first: int = 0) -> Tensor:
    """The two layouts mixed: each angle twice in a row, but pairs half a head apart."""
    angles = torch.arange(first, first + x.shape[2])[:, None] * torch.from_numpy(frequencies(HEAD_DIM, 10_000.0))
    cos, sin = angles.cos().repeat_interleave(2, -1), angles.sin().repeat_interleave(2, -1)
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


def complex_rotation(x: Tensor) -> Array:
    """The interleaved layout as its authors write it: a pair is a complex number, a turn its product with e^(ipθ)."""
    pairs = array(x).reshape(*x.shape[:-1], -1, 2)
    angles = np.arange(x.shape[2])[:, None] * float32(frequencies(HEAD_DIM, 10_000.0))
    turn = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)
    return np.stack((turn.real, turn.imag), -1).reshape(x.shape)


def spread_of_scores(rotate: Callable[..., Tensor], first: int = 0) -> float:
    """One query and one key at all positions: how much q·k varies where the offset is the same."""
    q, k = draw(2, 1, 1, 1, HEAD_DIM).expand(2, 1, 1, TOKENS, -1)
    scores = array(rotate(q, first=first) @ rotate(k, first=first).mT)[0, 0]
    return max(float(np.ptp(np.diagonal(scores, offset))) for offset in (0, 1, -1, 5, -40))


def norm_change(rotate: Callable[..., Tensor]) -> float:
    x = draw(2, 2, TOKENS, HEAD_DIM)
    return float((rotate(x).norm(dim=-1) - x.norm(dim=-1)).abs().max())


def test_interleaved_is_a_complex_product() -> None:
    x = draw(2, 3, TOKENS, HEAD_DIM)
    assert distance(turned(x, "interleaved"), complex_rotation(x)) < EXACT


def test_the_layouts_are_one_function_up_to_a_permutation() -> None:
    x = draw(2, 3, TOKENS, HEAD_DIM)
    assert distance(turned(x[..., SPLIT], "half"), turned(x, "interleaved")[..., SPLIT]) < EXACT
    assert distance(turned(x, "half"), turned(x, "interleaved")) > 0.1


def test_layers_of_both_layouts_agree_when_the_weights_are_permuted() -> None:
    layers = {layout: randomise(CONFIG.mixer.build(CONFIG, causal=True)).requires_grad_(False) for layout in LAYOUTS}
    half, interleaved = layers["half"], layers["interleaved"]
    for name in ("q", "k"):
        ours, theirs = getattr(half, name), getattr(interleaved, name)
        for parameter in ("weight", "bias"):
            heads = getattr(theirs, parameter).unflatten(0, (CONFIG.heads, HEAD_DIM))
            getattr(ours, parameter).data = heads[:, SPLIT].flatten(0, 1)
    positions, x = torch.arange(40).expand(2, -1), draw(2, 40, DIM)
    outputs = {}
    for layout, layer in layers.items():
        rotate = encoding(Rope(layout=layout)).rotation(positions)
        outputs[layout], _ = layer(x, layer.plan(torch.ones(2, 40), 40), rotate, ())
    assert distance(outputs["half"], outputs["interleaved"]) < EXACT


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scores_depend_on_the_offset_and_norms_are_kept(layout: str) -> None:
    rotate = partial(turned, layout=layout)
    assert spread_of_scores(rotate) < 1e-11
    assert spread_of_scores(rotate, first=100_000) < 1e-8  # float64 angles of 1e5 still have eleven digits
    assert norm_change(rotate) < EXACT * HEAD_DIM


def test_the_mixture_of_the_layouts_is_no_rotation() -> None:
    assert spread_of_scores(mixture) > 1.0
    assert norm_change(mixture) > 0.1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_position_zero_turns_nothing_and_each_row_has_its_own_positions(layout: str) -> None:
    rotary, x = encoding(Rope(layout=layout)), draw(2, 3, 4, HEAD_DIM)
    assert torch.equal(rotary.rotation(torch.zeros(2, 4, dtype=torch.int64))(x), x)
    both = rotary.rotation(torch.tensor([[0, 1, 2, 3], [7, 8, 9, 10]]))(x)
    assert distance(both[:1], turned(x[:1], layout)) < EXACT
    assert distance(both[1:], turned(x[1:], layout, first=7)) < EXACT


def test_rotary_leaves_embeddings_alone() -> None:
    x = draw(2, 4, DIM)
    assert torch.equal(encoding(Rope())(x, torch.arange(4).expand(2, -1)), x)


def test_scores_fade_with_distance() -> None:
    """For equal queries and keys, the mean score of far keys is below that of near ones (Su et al. 2021, 3.4.3)."""
    ones = torch.ones(1, 1, TOKENS, HEAD_DIM, dtype=torch.float64)
    scores = array(turned(ones, "half") @ turned(ones, "half").mT)[0, 0, 0]
    assert scores[0] == scores.max()
    assert scores[1:30].mean() > 1.2 * scores[-30:].mean()


def test_a_model_keeps_its_positions_in_float64() -> None:
    """A model in double computes angles in double: no float32 step is left between positions and angles."""
    config = replace(CONFIG, position=Rope())
    positions = torch.tensor([[2**24 + 1]])  # not a float32 number
    x = torch.ones(1, 1, 1, HEAD_DIM, dtype=torch.float64)
    y = array(config.position.build(config).double().rotation(positions)(x))[0, 0, 0]
    assert np.isclose(y[0], np.cos(2**24 + 1) - np.sin(2**24 + 1), rtol=0, atol=1e-8)
