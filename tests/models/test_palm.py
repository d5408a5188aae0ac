"""PaLM written from section 2 of its paper in plain NumPy, token by token and head by head, against the preset."""

from __future__ import annotations

from math import cos, exp, sin, sqrt

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from isorun.models.phases import phase_module
from isorun.models.presets import PRESETS
from isorun.models.transformer import build

Array = NDArray[np.float64]
EQUAL = 1e-12
PALM = PRESETS["palm-8b"].at("tiny")
WEIGHTS = {name: tensor.numpy() for name, tensor in build(PALM).double().state_dict().items()}
# The angles' rates are kept in float32: the only thing taken over from the model beside its weights.
RATES = [float(np.float32(10_000.0 ** (-2 * i / PALM.head_dim))) for i in range(PALM.head_dim // 2)]


def layer_norm(x: Array, gain: Array) -> Array:
    """No biases: "no biases were used in any of the dense kernels or layer norms"."""
    return gain * (x - x.mean()) / sqrt(x.var() + 1e-6)


def rope(x: Array, position: int) -> Array:
    """Each pair of neighbours turned by its angle, as a product with a 2 × 2 matrix (Su et al. 2021, equation 15)."""
    turned = np.empty_like(x)
    for pair, rate in enumerate(RATES):
        angle = position * rate
        rotation = np.array([[cos(angle), -sin(angle)], [sin(angle), cos(angle)]])
        turned[2 * pair : 2 * pair + 2] = rotation @ x[2 * pair : 2 * pair + 2]
    return turned


def attention(h: list[Array], layer: str) -> list[Array]:
    """Multi-query: a key and a value for all heads, each token against itself and those before it."""
    size = PALM.head_dim
    wq, wk, wv, wo = (WEIGHTS[f"{layer}.mixer.{part}.weight"] for part in "qkvo")
    keys = [rope(wk @ x, position) for position, x in enumerate(h)]
    values = [wv @ x for x in h]
    out = []
    for position, x in enumerate(h):
        heads = []
        for head in range(PALM.heads):
            q = rope((wq @ x)[head * size : (head + 1) * size], position)
            weights = [exp(q @ keys[j] / sqrt(size)) for j in range(position + 1)]
            heads.append(sum(w * values[j] for j, w in enumerate(weights)) / sum(weights))
        out.append(wo @ np.concatenate(heads))
    return out


def swiglu(x: Array, layer: str) -> Array:
    gate, up, down = (WEIGHTS[f"{layer}.ffn.{part}.weight"] for part in ("gate", "up", "down"))
    swish = np.array([v / (1 + exp(-v)) for v in gate @ x])
    result: Array = down @ (swish * (up @ x))
    return result


def palm(ids: list[int]) -> Array:
    """y = x + MLP(LayerNorm(x)) + Attention(LayerNorm(x)), one LayerNorm; logits from the embedding, over √dim."""
    table = WEIGHTS["embedding.word.weight"]
    x = [table[token] for token in ids]
    for i in range(PALM.layers):
        layer = f"stack.layers.{i}"
        h = [layer_norm(token, WEIGHTS[f"{layer}.norm.weight"]) for token in x]
        mixed = attention(h, layer)
        x = [a + swiglu(b, layer) + c for a, b, c in zip(x, h, mixed, strict=True)]
    final = [layer_norm(token, WEIGHTS["stack.final_norm.weight"]) for token in x]
    return np.stack([table @ token / sqrt(PALM.dim) for token in final])


@pytest.mark.parametrize("lengths", [(9, 6, 1), (1, 1, 1)], ids=str)
def test_logits_and_cached_steps(lengths: tuple[int, ...]) -> None:
    longest = max(lengths)
    ids = np.random.default_rng(0).integers(0, PALM.vocab, (3, longest))
    mask = np.array([[0] * (longest - n) + [1] * n for n in lengths])
    positions = np.array([[0] * (longest - n) + list(range(n)) for n in lengths])
    feeds = [torch.from_numpy(x) for x in (ids, mask, positions)]
    model = build(PALM).double()
    (whole,) = phase_module(PALM, "forward", model=model)(*feeds)
    steps, past = [], [torch.zeros(3, 1, 0, PALM.head_dim, dtype=torch.float64)] * (2 * PALM.layers)
    step = phase_module(PALM, "step", model=model)
    for end in range(1, longest + 1):
        new = (feeds[0][:, end - 1 : end], feeds[1][:, :end], feeds[2][:, end - 1 : end])
        logits, *past = step(*new, *past)
        steps.append(logits)
    for row, length in enumerate(lengths):
        expected = palm([int(token) for token in ids[row, longest - length :]])
        for ours in (whole, torch.cat(steps, 1)):
            got = ours[row, longest - length :].numpy()
            assert np.abs(got - expected).max() < EQUAL * np.abs(expected).max()
