"""Shaw et al. 2018 and Transformer-XL against plain NumPy forwards written from the papers, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from isorun.models.config import ConfigError, ModelConfig
from isorun.models.phases import phase_module
from isorun.models.position import Rope
from isorun.models.presets import PRESETS
from isorun.models.relative_attention import Shaw
from isorun.models.transformer import build

from .plain import (
    Array,
    array,
    attention,
    causal,
    distance,
    frequencies,
    left_padded,
    linear,
    merge,
    sinusoids,
    softmax,
    split,
)

EQUAL = 1e-12
CLIP, D, HEADS, DIM = 3, 10, 4, 40
SIZES = {"dim": DIM, "heads": HEADS, "layers": 3, "vocab": 37}
SHAW = replace(PRESETS["shaw"], mixer=Shaw(clip=CLIP)).scaled(**SIZES)
XL = PRESETS["transformer-xl"].scaled(**SIZES)
Mask = NDArray[np.int64]


def normed(x: Array, layer: nn.Module) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    result: Array = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + layer.eps) * array(layer.weight)
    return result + array(layer.bias)


def ffn(x: Array, layer: Any) -> Array:
    return normed(x + linear(np.maximum(linear(x, layer.ffn.up), 0), layer.ffn.down), layer.ffn_joint.norm)


def embedded(ids: Mask, model: Any) -> Array:
    return array(model.embedding.word.weight)[ids] * np.sqrt(DIM)


def draw(shape: tuple[int, ...], seed: int = 0) -> Mask:
    return np.random.default_rng(seed).integers(0, SIZES["vocab"], shape)


def tensors(*arrays: NDArray[Any]) -> list[torch.Tensor]:
    return [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]


# Shaw et al.


def shaw_layer(x: Array, layer: Any, allowed: NDArray[np.bool_]) -> Array:
    """Equations 3 to 5, with a vector for every pair: a[i, j] = w[clip(j - i)]."""
    mixer, n = layer.mixer, np.arange(x.shape[1])
    offset = np.clip(n - n[:, None], -CLIP, CLIP) + CLIP
    a_k, a_v = (array(t.weight).reshape(-1, HEADS, D)[offset] for t in (mixer.key_vectors, mixer.value_vectors))
    q, k, v = (split(linear(x, projection), D) for projection in (mixer.q, mixer.k, mixer.v))
    scores = np.einsum("bhid,bhjd->bhij", q, k) + np.einsum("bhid,ijhd->bhij", q, a_k)
    weights = softmax(np.where(allowed, scores / np.sqrt(D), -np.inf))
    y = np.einsum("bhij,bhjd->bhid", weights, v) + np.einsum("bhij,ijhd->bhid", weights, a_v)
    return normed(x + linear(merge(y), mixer.o), layer.mixer_joint.norm)


def cross_layer(x: Array, layer: Any, source: Array, seen: NDArray[np.bool_]) -> Array:
    q = split(linear(x, layer.cross.q), D)
    k, v = (split(linear(source, projection), D) for projection in (layer.cross.k, layer.cross.v))
    return normed(x + linear(merge(attention(q, k, v, seen)), layer.cross.o), layer.cross_joint.norm)


def shaw(model: Any, source: Mask, source_mask: Mask, ids: Mask, mask: Mask) -> Array:
    seen = source_mask[:, None, None, :] > 0
    states, x = embedded(source, model), embedded(ids, model)
    for layer in model.encoder.layers:
        states = ffn(shaw_layer(states, layer, seen), layer)
    for layer in model.decoder.layers:
        x = shaw_layer(x, layer, causal(mask, mask.shape[1]))
        x = ffn(cross_layer(x, layer, states, seen), layer)
    return linear(x, model.head.linear)


@pytest.mark.parametrize("lengths", [[17, 12, 1], [3, 3, 2], [1, 1, 1]], ids=str)
def test_shaw_is_the_paper(lengths: list[int]) -> None:
    """Lengths beyond the clipping distance on both sides, at it, and none."""
    model = build(SHAW, seed=1).double()
    mask, source_mask = left_padded(lengths), left_padded([13, 4, 1])[:, ::-1]
    ids, source = draw(mask.shape), draw(source_mask.shape, 1)
    (logits,) = phase_module(SHAW, "forward", model=model)(*tensors(source, source_mask, ids, mask))
    expected = shaw(model, source, source_mask, ids, mask)
    assert distance(array(logits)[mask > 0], expected[mask > 0]) < EQUAL


@pytest.mark.parametrize("clip", [1, 2, 30])
def test_a_clipping_distance_below_and_above_the_length(clip: int) -> None:
    config = replace(SHAW, mixer=Shaw(clip=clip))
    layer = build(config, seed=1).double().encoder.layers[0]
    mixer, x = layer.mixer, torch.randn(2, 9, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found, _ = mixer(x, mixer.plan(torch.ones(2, 9, dtype=torch.int64), 9), lambda y: y, ())
    n = np.arange(9)
    offset = np.clip(n - n[:, None], -clip, clip) + clip
    a_k, a_v = (array(t.weight).reshape(-1, HEADS, D)[offset] for t in (mixer.key_vectors, mixer.value_vectors))
    q, k, v = (split(linear(array(x), projection), D) for projection in (mixer.q, mixer.k, mixer.v))
    weights = softmax(np.einsum("bhid,bhijd->bhij", q, k[:, :, None] + a_k.transpose(2, 0, 1, 3)) / np.sqrt(D))
    y = np.einsum("bhij,bhijd->bhid", weights, v[:, :, None] + a_v.transpose(2, 0, 1, 3))
    assert distance(found, linear(merge(y), mixer.o)) < EQUAL


# Transformer-XL


def xl_layer(x: Array, memory: Array, layer: Any, allowed: NDArray[np.bool_]) -> Array:
    """Section 3.3: four terms for each pair of a query and a key of [memory; x]."""
    mixer, both = layer.mixer, np.concatenate((memory, x), 1)
    p, m = memory.shape[1], x.shape[1]
    q = split(linear(x, mixer.q), D)
    k, v = (split(linear(both, projection), D) for projection in (mixer.k, mixer.v))
    gap = p + np.arange(m)[:, None] - np.arange(p + m)
    r = linear(sinusoids(np.abs(gap), frequencies(DIM, 10_000.0).astype(np.float32).astype(np.float64)), mixer.r)
    r = r.reshape(m, p + m, HEADS, D)  # of keys after the query: anything
    u, by_distance = array(mixer.content_bias)[:, 0], array(mixer.distance_bias)[:, 0]
    a, c = np.einsum("bhid,bhjd->bhij", q, k), np.einsum("hd,bhjd->bhj", u, k)[:, :, None]
    b, d = np.einsum("bhid,ijhd->bhij", q, r), np.einsum("hd,ijhd->hij", by_distance, r)
    weights = softmax(np.where(allowed, (a + b + c + d) / np.sqrt(D), -np.inf))
    return normed(x + linear(merge(weights @ v), mixer.o), layer.mixer_joint.norm)


def xl(model: Any, ids: Mask, mask: Mask, memories: list[Array]) -> tuple[Array, list[Array]]:
    """Logits of a segment, and what each layer read: the states that the next segment remembers."""
    x, read = embedded(ids, model), []
    for layer, memory in zip(model.stack.layers, memories, strict=True):
        read.append(np.concatenate((memory, x), 1))
        x = ffn(xl_layer(x, memory, layer, causal(mask, ids.shape[1])), layer)
    return linear(x, model.head.linear), read


def nothing(batch: int) -> list[Array]:
    return [np.zeros((batch, 0, DIM))] * XL.layers


@pytest.mark.parametrize("lengths", [[17, 12, 1], [3, 3, 2], [1, 1, 1]], ids=str)
def test_transformer_xl_is_the_paper(lengths: list[int]) -> None:
    model, mask = build(XL, seed=1).double(), left_padded(lengths)
    ids = draw(mask.shape)
    (logits,) = phase_module(XL, "forward", model=model)(*tensors(ids, mask))
    expected, _ = xl(model, ids, mask, nothing(3))
    assert distance(array(logits)[mask > 0], expected[mask > 0]) < EQUAL


@pytest.mark.parametrize(("segment", "memory"), [(5, 5), (4, 7), (6, 2), (1, 3)])
def test_segments_with_a_memory_of_limited_length(segment: int, memory: int) -> None:
    """Equation 2: a layer sees the states that the layer below had for the last tokens. Here it sees their keys."""
    model = build(XL, seed=1).double()
    ids, step = draw((2, 4 * segment)), phase_module(XL, "step", model=model)
    memories = nothing(2)
    past = [torch.zeros(2, HEADS, 0, D, dtype=torch.float64)] * (2 * XL.layers)
    for begin in range(0, ids.shape[1], segment):
        new = ids[:, begin : begin + segment]
        mask = np.ones((2, memories[0].shape[1] + segment), np.int64)
        expected, read = xl(model, new, mask, memories)
        logits, *present = step(*tensors(new, mask), *past)
        assert distance(logits, expected) < EQUAL
        memories, past = [states[:, -memory:] for states in read], [kept[:, :, -memory:] for kept in present]


def test_a_memory_reaches_further_than_its_length() -> None:
    """Three layers see three memories back, one after the other: the reason for the recurrence."""
    model = build(XL, seed=1).double()
    step = phase_module(XL, "step", model=model)

    def last(first_token: int) -> torch.Tensor:
        ids = draw((1, 12))
        ids[0, 0] = first_token
        past = [torch.zeros(1, HEADS, 0, D, dtype=torch.float64)] * (2 * XL.layers)
        for begin in range(0, 12, 4):
            mask = np.ones((1, past[0].shape[2] + 4), np.int64)
            logits, *present = step(*tensors(ids[:, begin : begin + 4], mask), *past)
            past = [kept[:, :, -4:] for kept in present]
        return logits

    assert not torch.equal(last(1), last(2))


# Refusals

REFUSED: dict[str, tuple[ModelConfig, dict[str, Any], str]] = {
    "a position besides Shaw's": (SHAW, {"position": Rope()}, "Shaw.* holds the positions itself, and Rope"),
    "a position besides Transformer-XL's": (XL, {"position": Rope()}, "TransformerXL.* holds the positions itself"),
    "no clipping distance": (SHAW, {"mixer": Shaw(clip=0)}, "clip 0 is below 1"),
    "an encoder with a memory": (XL, {"topology": "encoder"}, "not an encoder"),
    "odd dim": (XL, {"dim": 63, "heads": 7}, "even dim, not an decoder of dim 63"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_impossible_combination_is_refused(case: str) -> None:
    config, changes, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        replace(config, **changes)
