"""Residual wirings written out in NumPy with the layer's own weights; random weights in which every part matters."""

from __future__ import annotations

from dataclasses import replace
from math import erf

import numpy as np
import pytest
import torch
from torch import nn

from isorun.models.config import Bias, ModelConfig
from isorun.models.feedforward import GLU, MLP
from isorun.models.phases import phase_module, phases
from isorun.models.position import NoPosition, Rope
from isorun.models.presets import PRESETS
from isorun.models.transformer import build

from .plain import Array, architectures, array, attention, causal, distance, left_padded, linear, merge, split

EQUAL = 1e-12
EPS = 1e-5  # of both presets that are written out here

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def normed(x: Array, norm: nn.Module) -> Array:
    """LayerNorm or RMSNorm, from their formulas."""
    gain = array(norm.weight)
    if isinstance(norm, nn.RMSNorm):
        return gain * x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS)
    centred = x - x.mean(-1, keepdims=True)
    return gain * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPS) + array(norm.bias)


def mixed(x: Array, mixer: nn.Module, mask: Array) -> Array:
    q, k, v = (split(linear(x, part), mixer.head_dim) for part in (mixer.q, mixer.k, mixer.v))
    return linear(merge(attention(q, k, v, causal(mask, x.shape[1]))), mixer.o)


def fed(x: Array, ffn: nn.Module, spec: MLP | GLU) -> Array:
    activation = ACTIVATIONS[spec.activation]
    if isinstance(spec, MLP):
        return linear(activation(linear(x, ffn.up)), ffn.down)
    return linear(activation(linear(x, ffn.gate)) * linear(x, ffn.up), ffn.down)


def parallel(x: Array, layer: nn.Module, spec: MLP | GLU, mask: Array) -> Array:
    h = normed(x, layer.norm)
    return x + mixed(h, layer.mixer, mask) + fed(h, layer.ffn, spec)


def pre(x: Array, layer: nn.Module, spec: MLP | GLU, mask: Array) -> Array:
    x = x + mixed(normed(x, layer.mixer_joint.norm), layer.mixer, mask)
    return x + fed(normed(x, layer.ffn_joint.norm), layer.ffn, spec)


def post(x: Array, layer: nn.Module, spec: MLP | GLU, mask: Array) -> Array:
    x = normed(x + mixed(x, layer.mixer, mask), layer.mixer_joint.norm)
    return normed(x + fed(x, layer.ffn, spec), layer.ffn_joint.norm)


def sandwich(x: Array, layer: nn.Module, spec: MLP | GLU, mask: Array) -> Array:
    before, after = layer.mixer_joint.norm, layer.mixer_joint.norm_after
    x = x + normed(mixed(normed(x, before), layer.mixer, mask), after)
    before, after = layer.ffn_joint.norm, layer.ffn_joint.norm_after
    return x + normed(fed(normed(x, before), layer.ffn, spec), after)


WIRINGS = {"parallel": parallel, "pre": pre, "post": post, "sandwich": sandwich}
FFNS = [*(MLP(name, 80) for name in ACTIVATIONS), GLU("silu", 40), GLU("gelu", 40)]  # type: ignore[arg-type]


@pytest.mark.parametrize("base", ["gpt2", "llama3-8b"])
@pytest.mark.parametrize("residual", WIRINGS)
@pytest.mark.parametrize("ffn", FFNS, ids=str)
def test_a_decoder_written_out(base: str, residual: str, ffn: MLP | GLU) -> None:
    """LayerNorm with biases and RMSNorm with groups, in each wiring with each feed-forward layer."""
    config = replace(PRESETS[base].at("tiny"), residual=residual, ffn=ffn, position=NoPosition())  # type: ignore[arg-type]
    model = build(config).double()
    mask = left_padded([13, 9, 1])
    ids = np.random.default_rng(3).integers(0, 256, mask.shape)
    x = array(model.embedding.word.weight)[ids]
    for layer in model.stack.layers:
        x = WIRINGS[residual](x, layer, ffn, mask)
    if residual != "post":
        x = normed(x, model.stack.final_norm)
    logits, _ = model(torch.from_numpy(ids), torch.from_numpy(mask), torch.zeros_like(torch.from_numpy(ids)))
    assert distance(logits, linear(x, model.head.linear)) < EQUAL


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("scaled", "cap"), [(True, None), (False, 0.7), (True, 0.1)])
def test_a_head_written_out(tied: bool, scaled: bool, cap: float | None) -> None:
    """cap·tanh(W·x/(√dim·cap) + b/cap): the bias is not scaled (it is part of the logits), the cap comes last."""
    options = {"tie_embeddings": tied, "scale_logits": scaled, "logit_softcap": cap, "bias": Bias(head=True)}
    head = build(replace(PRESETS["gpt2"].at("tiny"), **options)).double().head
    x = np.random.default_rng(0).standard_normal((2, 3, 64))
    y = x @ array(head.linear.weight).T / (8 if scaled else 1) + array(head.linear.bias)
    expected = y if cap is None else cap * np.tanh(y / cap)
    assert distance(head(torch.from_numpy(x)), expected) < EQUAL


BIASES = {"qkv": {"q", "k", "v"}, "out": {"o"}, "ffn": {"up", "down"}, "head": {"linear"}}


@pytest.mark.parametrize("kind", BIASES)
def test_a_bias_where_it_was_asked_for(kind: str) -> None:
    model = build(replace(PRESETS["gpt2"].at("tiny"), bias=Bias(**{kind: True})))
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    assert {name.rpartition(".")[2] for name, module in linear.items() if module.bias is not None} == BIASES[kind]


def test_a_parallel_model_steps_like_any_other() -> None:
    config = replace(PRESETS["llama3-8b"].at("tiny"), residual="parallel")
    model = build(config).double()
    step, whole = (phase_module(config, phase, model=model) for phase in ("step", "forward"))
    ids, mask = torch.arange(18).reshape(2, 9), torch.ones(2, 9, dtype=torch.int64)
    where = torch.arange(9).expand(2, -1)
    (expected,) = whole(ids, mask, where)
    past = [torch.zeros(2, 2, 0, 8, dtype=torch.float64)] * 4
    for begin, end in ((0, 5), (5, 6), (6, 9)):
        logits, *past = step(ids[:, begin:end], mask[:, :end], where[:, begin:end], *past)
        assert distance(logits, expected[:, begin:end]) < EQUAL


# Weights


def weights(config: ModelConfig, seed: int) -> list[torch.Tensor]:
    return list(build(config, seed=seed).parameters())


@pytest.mark.parametrize("preset", PRESETS)
def test_weights_depend_on_the_seed_alone(preset: str) -> None:
    config = PRESETS[preset].at("tiny")
    torch.manual_seed(1)
    once = weights(config, 4)
    torch.manual_seed(2)
    assert all(map(torch.equal, once, weights(config, 4)))
    assert not any(map(torch.equal, once, weights(config, 5)))


@pytest.mark.parametrize("preset", architectures())
def test_every_weight_reaches_the_output(preset: str) -> None:
    """A fault in any part must show. A key's bias moves all scores of a query alike, which softmax does not see
    unless the key is rotated."""
    config = PRESETS[preset].at("tiny")
    model = build(config).double()
    module = phase_module(config, phases(config)[0], model=model)
    feeds = [torch.from_numpy(x) for x in module.signature.feeds(module.example, padding="left").values()]
    before = module(*feeds)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        kept = parameter.data.clone()
        parameter.data += 0.1 * torch.randn(kept.shape, generator=generator, dtype=kept.dtype)
        after = module(*feeds)
        parameter.data = kept
        moved = max(map(distance, after, before)) > 1e-3
        key_bias = ".mixer.k" in name and name.endswith(".bias") and not isinstance(config.position, Rope)
        assert moved != (key_bias or name.endswith(".cross.k.bias")), name


def test_activations_stay_of_order_one_at_depth() -> None:
    for preset in ("gpt2", "llama3-8b", "bert-base"):
        config = PRESETS[preset].at("tiny").scaled(layers=12)
        model = build(config)
        module = phase_module(config, "forward", model=model)
        feeds = module.signature.feeds(module.example)
        output, *_ = module(*map(torch.from_numpy, feeds.values()))
        assert 0.3 < output.std() < 10
