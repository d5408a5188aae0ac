"""The Transformer of 2017 against torch.nn.Transformer, and the recurrent baseline against torch.nn.LSTM."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from isorun.models.phases import phase_module
from isorun.models.presets import PRESETS
from isorun.models.transformer import Decoder, EncoderDecoder, build

from .plain import distance, float32, frequencies, left_padded, sinusoids

EQUAL = 1e-12
TRANSFORMER = PRESETS["transformer-base"].at("tiny")
LSTM = PRESETS["lstm"].at("tiny")


# Transformer


def pour_attention(theirs: nn.MultiheadAttention, ours: nn.Module) -> None:
    parts = (ours.q, ours.k, ours.v)
    theirs.in_proj_weight.data = torch.cat([part.weight for part in parts])
    theirs.in_proj_bias.data = torch.cat([part.bias for part in parts])
    pour(theirs.out_proj, ours.o)


def pour(theirs: nn.Module, ours: nn.Module) -> None:
    theirs.weight.data, theirs.bias.data = ours.weight.data, ours.bias.data


def torch_transformer(model: EncoderDecoder) -> nn.Transformer:
    """Their module with our weights; it ends each stack in a norm more than the paper has, which is taken out."""
    config = TRANSFORMER
    theirs = nn.Transformer(
        config.dim,
        config.heads,
        config.layers,
        config.layers,
        4 * config.dim,
        dropout=0.0,
        activation="relu",
        layer_norm_eps=1e-5,
        batch_first=True,
        norm_first=False,
        dtype=torch.float64,
    )
    theirs.encoder.norm = theirs.decoder.norm = None
    for layer, ours in zip(theirs.encoder.layers, model.encoder.layers, strict=True):
        pour_attention(layer.self_attn, ours.mixer)
        pairs = ((layer.norm1, ours.mixer_joint.norm), (layer.norm2, ours.ffn_joint.norm))
        for a, b in (*pairs, (layer.linear1, ours.ffn.up), (layer.linear2, ours.ffn.down)):
            pour(a, b)
    for layer, ours in zip(theirs.decoder.layers, model.decoder.layers, strict=True):
        pour_attention(layer.self_attn, ours.mixer)
        pour_attention(layer.multihead_attn, ours.cross)
        norms = ((layer.norm1, ours.mixer_joint), (layer.norm2, ours.cross_joint), (layer.norm3, ours.ffn_joint))
        for norm, joint in norms:
            pour(norm, joint.norm)
        pour(layer.linear1, ours.ffn.up)
        pour(layer.linear2, ours.ffn.down)
    return theirs


def embedded(model: EncoderDecoder, ids: Tensor) -> Tensor:
    """√dim·E[ids] + PE, positions counted from the left."""
    wave = sinusoids(np.arange(ids.shape[1]), float32(frequencies(TRANSFORMER.dim, 10_000.0)))
    return model.embedding.word.weight[ids] * TRANSFORMER.dim**0.5 + torch.from_numpy(wave)


def expected_logits(model: EncoderDecoder, source: Tensor, s_mask: Tensor, target: Tensor, t_mask: Tensor) -> Tensor:
    """What nn.Transformer gives at right-padded batches, through the tied head."""
    theirs = torch_transformer(model)
    ahead = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
    states = theirs(
        embedded(model, source),
        embedded(model, target),
        tgt_mask=ahead,
        src_key_padding_mask=s_mask == 0,
        tgt_key_padding_mask=t_mask == 0,
        memory_key_padding_mask=s_mask == 0,
    )
    logits: Tensor = states @ model.embedding.word.weight.T
    return logits.detach()


def draw(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, shape))


@pytest.mark.parametrize("sources", [[11, 7, 1], [1, 1, 1]], ids=str)
@pytest.mark.parametrize("targets", [[9, 4, 1], [2, 2, 2], [1, 1, 1]], ids=str)
def test_transformer_with_padding(sources: list[int], targets: list[int]) -> None:
    model = build(TRANSFORMER).double()
    s_mask, t_mask = (torch.from_numpy(left_padded(lengths)).flip(1) for lengths in (sources, targets))
    source, target = draw(1, *s_mask.shape), draw(2, *t_mask.shape)
    expected = expected_logits(model, source, s_mask, target, t_mask)
    (logits,) = phase_module(TRANSFORMER, "forward", model=model)(source, s_mask, target, t_mask)
    assert distance(logits[t_mask > 0], expected[t_mask > 0]) < EQUAL


def test_transformer_with_a_left_padded_target() -> None:
    """Their module knows no positions, so each row of ours is compared with its own run without padding."""
    model = build(TRANSFORMER).double()
    lengths = [9, 4, 1]
    t_mask, s_mask = torch.from_numpy(left_padded(lengths)), torch.ones(3, 6, dtype=torch.int64)
    source, target = draw(3, 3, 6), draw(4, 3, 9)
    (logits,) = phase_module(TRANSFORMER, "forward", model=model)(source, s_mask, target, t_mask)
    for row, length in enumerate(lengths):
        one, real = slice(row, row + 1), target[row : row + 1, 9 - length :]
        expected = expected_logits(model, source[one], s_mask[one], real, torch.ones_like(real))
        assert distance(logits[one, 9 - length :], expected) < EQUAL


# LSTM


def torch_lstm(model: Decoder) -> nn.LSTM:
    """Their module with our weights, without the padding flag that ours adds as a last input."""
    dim = LSTM.dim
    theirs = nn.LSTM(dim, dim, num_layers=LSTM.layers, batch_first=True, dtype=torch.float64)
    for i, layer in enumerate(model.stack.layers):
        getattr(theirs, f"weight_ih_l{i}").data = layer.mixer.weight_input[:, :dim].contiguous()
        getattr(theirs, f"weight_hh_l{i}").data = layer.mixer.weight_hidden
        getattr(theirs, f"bias_ih_l{i}").data = layer.mixer.bias
        getattr(theirs, f"bias_hh_l{i}").data.zero_()
    return theirs


def run_theirs(model: Decoder, ids: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
    """Logits and the states in the order of ours: hidden and cell, layer by layer."""
    y, (hidden, cell) = torch_lstm(model)(model.embedding.word.weight[ids], state)
    logits = y @ model.head.linear.weight.T
    return logits.detach(), [tensor.detach() for pair in zip(hidden, cell, strict=True) for tensor in pair]


def zeros(rows: int) -> list[Tensor]:
    return [torch.zeros(rows, LSTM.dim, dtype=torch.float64) for _ in range(2 * LSTM.layers)]


@pytest.mark.parametrize("tokens", [1, 2, 23])
def test_lstm_without_padding(tokens: int) -> None:
    model = build(LSTM).double()
    ids, past = draw(5, 3, tokens), [torch.randn_like(state) for state in zeros(3)]
    state = torch.stack(past[0::2]), torch.stack(past[1::2])
    logits, *present = phase_module(LSTM, "step", model=model)(ids, torch.ones_like(ids), *past)
    expected, states = run_theirs(model, ids, state)
    for got, theirs in zip((logits, *present), (expected, *states), strict=True):
        assert distance(got, theirs) < EQUAL


@pytest.mark.parametrize("side", ["left", "right"])
def test_lstm_with_padding(side: str) -> None:
    """Each row as if it were run alone and unpadded: its logits, its states, and the two tokens that follow."""
    model = build(LSTM).double()
    step = phase_module(LSTM, "step", model=model)
    lengths = [9, 5, 1]
    mask = torch.from_numpy(left_padded(lengths))
    mask = mask if side == "left" else mask.flip(1)
    ids, then = draw(6, 3, 9), draw(7, 3, 2)
    logits, *present = step(ids, mask, *zeros(3))
    later, *last = step(then, torch.cat((mask, torch.ones_like(then)), 1), *present)
    for row in range(3):
        real = ids[row][mask[row] > 0]
        expected, states = run_theirs(model, torch.cat((real, then[row]))[None])
        assert distance(logits[row][mask[row] > 0], expected[0, :-2]) < EQUAL
        assert distance(later[row], expected[0, -2:]) < EQUAL
        for got, theirs in zip(last, states, strict=True):
            assert distance(got[row], theirs[0]) < EQUAL
    if side == "left":
        assert not logits[mask == 0].any()  # from the zero state, padding leaves everything at zero


def test_lstm_rows_of_padding_alone_keep_their_state() -> None:
    model = build(LSTM).double()
    ids, past = draw(8, 2, 4), [torch.randn_like(state) for state in zeros(2)]
    mask = torch.tensor([[0, 0, 0, 0], [1, 1, 0, 0]])
    _, *present = phase_module(LSTM, "step", model=model)(ids, mask, *past)
    assert all(torch.equal(new[0], old[0]) for new, old in zip(present, past, strict=True))
    state = torch.stack([old[1:] for old in past[0::2]]), torch.stack([old[1:] for old in past[1::2]])
    _, states = run_theirs(model, ids[1:, :2], state)
    for got, theirs in zip(present, states, strict=True):
        assert distance(got[1:], theirs) < EQUAL
