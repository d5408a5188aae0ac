"""The simple recurrent network against torch.nn.RNN, and padding of every kind that passes it by."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from isorun.models.phases import phase_module
from isorun.models.presets import PRESETS
from isorun.models.transformer import Decoder, build

from .plain import distance

EQUAL = 1e-12
RNN = PRESETS["rnn"].at("tiny")


def run_theirs(model: Decoder, ids: Tensor, state: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
    """Their module with our weights: logits, and the state of each layer."""
    theirs = nn.RNN(RNN.dim, RNN.dim, num_layers=RNN.layers, batch_first=True, dtype=torch.float64)
    for i, layer in enumerate(model.stack.layers):
        getattr(theirs, f"weight_ih_l{i}").data = layer.mixer.weight_input
        getattr(theirs, f"weight_hh_l{i}").data = layer.mixer.weight_hidden
        getattr(theirs, f"bias_ih_l{i}").data = layer.mixer.bias
        getattr(theirs, f"bias_hh_l{i}").data.zero_()
    with torch.no_grad():
        y, hidden = theirs(model.embedding.word.weight[ids], state)
    return y @ model.head.linear.weight.T, list(hidden)


def draw(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, shape))


def states(rows: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return [torch.randn(rows, RNN.dim, dtype=torch.float64, generator=generator) for _ in range(RNN.layers)]


@pytest.mark.parametrize("tokens", [1, 2, 23])
def test_without_padding(tokens: int) -> None:
    model = build(RNN).double()
    ids, past = draw(5, 3, tokens), states(3)
    logits, *present = phase_module(RNN, "step", model=model)(ids, torch.ones_like(ids), *past)
    expected, last = run_theirs(model, ids, torch.stack(past))
    for got, theirs in zip((logits, *present), (expected, *last), strict=True):
        assert distance(got, theirs) < EQUAL


PADDED = {
    "left": ["111111111", "000011111", "000000001"],
    "right": ["111111111", "111110000", "100000000"],
    "both": ["111111111", "001111100", "000010000"],
    "holes": ["111111111", "101101001", "010101010"],
    "a row of padding alone": ["111111111", "000000000", "000111000"],
}


@pytest.mark.parametrize("case", PADDED)
def test_padding_passes_by(case: str) -> None:
    """Each row as if it were run alone and unpadded: its logits, its states, and the two tokens that follow."""
    model = build(RNN).double()
    step = phase_module(RNN, "step", model=model)
    mask = torch.tensor([[int(bit) for bit in row] for row in PADDED[case]])
    ids, then, past = draw(6, 3, 9), draw(7, 3, 2), states(3)
    logits, *present = step(ids, mask, *past)
    later, *last = step(then, torch.cat((mask, torch.ones_like(then)), 1), *present)
    for row in range(3):
        real = mask[row] > 0
        tokens, start = torch.cat((ids[row][real], then[row]))[None], torch.stack([old[row : row + 1] for old in past])
        expected, ended = run_theirs(model, tokens, start)
        got = torch.cat((logits[row][real], later[row]))
        assert distance(got, expected[0]) < EQUAL
        for ours, theirs in zip(last, ended, strict=True):
            assert distance(ours[row], theirs[0]) < EQUAL


def test_rows_of_padding_alone_keep_their_state() -> None:
    ids, past = draw(8, 2, 4), states(2)
    _, *present = phase_module(RNN, "step", model=build(RNN).double())(ids, torch.zeros_like(ids), *past)
    assert all(map(torch.equal, present, past))
