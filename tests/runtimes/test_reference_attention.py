"""Attention and RotaryEmbedding in float64 against torch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

B, H, G, N, D, DV = 2, 6, 2, 5, 8, 4  # batch, query heads, key heads, queries, head dim, head dim of the values
PAST = 3


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def bias_of(mask: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else mask)


def torch_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: torch.Tensor | None, **kw: Any) -> torch.Tensor:
    """torch's scaled_dot_product_attention in float64, key heads repeated: (B, H, N, D)."""
    key, value = (torch.from_numpy(x).repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return F.scaled_dot_product_attention(torch.from_numpy(q), key, value, bias, **kw)


def error(got: np.ndarray, expected: torch.Tensor) -> float:
    assert (got.dtype, got.shape) == (np.float64, tuple(expected.shape))
    return float(np.abs(got - expected.numpy()).max())


def merged(x: np.ndarray) -> np.ndarray:
    """(b, heads, n, d) -> (b, n, heads·d)."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


Q, K, V = draw(B, H, N, D), draw(B, G, N, D), draw(B, G, N, DV)
MASKS = {
    "none": None,
    "bool": draw(B, 1, N, N) > -0.5,
    "padding": np.arange(N) < np.array([N, 2])[:, None, None, None],
    "float": draw(1, H, N, N),
    "two axes": draw(N, N) > -0.5,
}


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_masks_and_groups(evaluate: Callable, opset: int, mask: str, causal: int, scale: float | None) -> None:
    attributes = {} if scale is None else {"scale": scale}
    given = MASKS[mask]
    (y,) = evaluate("Attention", {"q": Q, "k": K, "v": V, "m": given}, opset=opset, is_causal=causal, **attributes)
    bias = torch.zeros(N, N, dtype=torch.float64) if given is None else bias_of(given)
    if causal:
        bias = bias + torch.full((N, N), -torch.inf, dtype=torch.float64).triu(1)
    assert error(y, torch_attention(Q, K, V, bias, scale=scale)) < 1e-14


def test_three_axes(evaluate: Callable) -> None:
    inputs = {"q": merged(Q), "k": merged(K), "v": merged(V)}
    (y,) = evaluate("Attention", inputs, q_num_heads=H, kv_num_heads=G, is_causal=1)
    expected = torch_attention(Q, K, V, None, is_causal=True).transpose(1, 2).reshape(B, N, H * DV)
    assert error(y, expected) < 1e-14


def test_past_and_present(evaluate: Callable) -> None:
    past_k, past_v = draw(B, G, PAST, D), draw(B, G, PAST, DV)
    inputs = {"q": Q, "k": K, "v": V, "m": None, "pk": past_k, "pv": past_v}
    y, present_k, present_v = evaluate("Attention", inputs, outputs=3, is_causal=1)
    k, v = np.concatenate((past_k, K), 2), np.concatenate((past_v, V), 2)
    seen = torch.ones(N, PAST + N, dtype=torch.bool).tril(PAST)
    assert error(y, torch_attention(Q, k, v, seen)) < 1e-14
    assert np.array_equal(present_k, k)
    assert np.array_equal(present_v, v)


def test_empty_past(evaluate: Callable) -> None:
    inputs = {"q": Q, "k": K, "v": V, "m": None, "pk": draw(B, G, 0, D), "pv": draw(B, G, 0, DV)}
    y, _, _ = evaluate("Attention", inputs, outputs=3, is_causal=1)
    assert error(y, torch_attention(Q, K, V, None, is_causal=True)) < 1e-14


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_softcap_and_the_scores_at_each_stage(evaluate: Callable, mode: int) -> None:
    mask = MASKS["bool"]
    y, _, _, scores = evaluate(
        "Attention",
        {"q": Q, "k": K, "v": V, "m": mask},
        outputs=4,
        softcap=2.5,
        qk_matmul_output_mode=mode,
        softmax_precision=1,
    )
    q, k, v = (torch.from_numpy(x) for x in (Q, K, V))
    k, v = k.repeat_interleave(H // G, 1), v.repeat_interleave(H // G, 1)
    raw = q @ k.mT / D**0.5
    capped = 2.5 * torch.tanh(raw / 2.5)
    biased = capped.masked_fill(~torch.from_numpy(mask), -torch.inf)
    weights = biased.softmax(-1)
    assert error(y, weights @ v) < 1e-14
    stage = (raw, capped, biased, weights)[mode].numpy()
    assert np.array_equal(np.isneginf(scores), np.isneginf(stage))
    assert np.abs(np.nan_to_num(scores, neginf=0) - np.nan_to_num(stage, neginf=0)).max() < 1e-14


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_query_that_sees_nothing_is_zero(evaluate: Callable, kind: str) -> None:
    mask = np.ones((N, N), np.bool_)
    mask[2] = False
    given = mask if kind == "bool" else np.where(mask, 0.0, -np.inf)
    y, _, _, weights = evaluate("Attention", {"q": Q, "k": K, "v": V, "m": given}, outputs=4, qk_matmul_output_mode=3)
    assert not y[:, :, 2].any()
    assert not weights[:, :, 2].any()
    others = [0, 1, 3, 4]
    assert error(y[:, :, others], torch_attention(Q[:, :, others], K, V, None)) < 1e-14


def test_cache_kept_outside_with_its_lengths(evaluate: Callable) -> None:
    """Opset 24: row r has lengths[r] real keys, its last query stands at the last one; a short mask hides the rest."""
    lengths, keys = np.array([8, 6]), 9
    k, v = draw(B, G, keys, D), draw(B, G, keys, DV)
    mask = draw(B, 1, N, 8) > -1
    inputs = {"q": Q, "k": k, "v": v, "m": mask, "pk": None, "pv": None, "lengths": lengths}
    (y,) = evaluate("Attention", inputs, opset=24, is_causal=1)
    for row, length in enumerate(lengths):
        seen = torch.ones(N, int(length), dtype=torch.bool).tril(int(length) - N)
        seen = seen & torch.from_numpy(mask[row, 0, :, :length])
        one = slice(row, row + 1)
        assert error(y[one], torch_attention(Q[one], k[one, :, :length], v[one, :, :length], seen)) < 1e-14


@pytest.mark.parametrize(("left", "right"), [(2, 0), (1, 2), (-1, 1)])
def test_window(evaluate: Callable, left: int, right: int) -> None:
    attributes = {"left_window_size": left, "right_window_size": right}
    (y,) = evaluate("Attention", {"q": Q, "k": K, "v": V}, opset=25, **attributes)
    i, j = torch.arange(N)[:, None], torch.arange(N)
    seen = (j <= i + right) & (j >= i - (left if left >= 0 else N))
    assert error(y, torch_attention(Q, K, V, seen)) < 1e-14


def test_window_off_by_one_shows(evaluate: Callable) -> None:
    (y,) = evaluate("Attention", {"q": Q, "k": K, "v": V}, opset=25, left_window_size=2, is_causal=1)
    i, j = torch.arange(N)[:, None], torch.arange(N)
    assert error(y, torch_attention(Q, K, V, (j <= i) & (j > i - 2))) > 1e-2


def rotated(x: torch.Tensor, angle: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """The rotation as a product of complex numbers: pairs (x0, x1), (x2, x3)… or (x0, x_half)…"""
    pairs = x.unflatten(-1, (-1, 2)) if interleaved else x.unflatten(-1, (2, -1)).transpose(-1, -2)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angle), angle))
    return (turned if interleaved else turned.transpose(-1, -2)).flatten(-2)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("axes", [3, 4])
@pytest.mark.parametrize("dim", [D, D // 2])
@pytest.mark.parametrize("by_position", [False, True])
def test_rotary_embedding(evaluate: Callable, interleaved: int, axes: int, dim: int, by_position: bool) -> None:
    table = draw(20, dim // 2) * 3
    positions = np.random.default_rng(0).integers(0, 20, (B, N))
    angle = table[positions]  # (B, N, dim/2)
    cos, sin = (np.cos(table), np.sin(table)) if by_position else (np.cos(angle), np.sin(angle))
    inputs = {"x": Q if axes == 4 else merged(Q), "c": cos, "s": sin, "p": positions if by_position else None}
    (y,) = evaluate(
        "RotaryEmbedding",
        inputs,
        interleaved=interleaved,
        rotary_embedding_dim=0 if dim == D else dim,
        num_heads=H if axes == 3 else 0,
    )
    q = torch.from_numpy(Q)
    turned = rotated(q[..., :dim], torch.from_numpy(angle)[:, None].expand(B, H, N, dim // 2), bool(interleaved))
    expected = torch.cat((turned, q[..., dim:]), -1)
    assert error(y, expected if axes == 4 else torch.from_numpy(merged(expected.numpy()))) < 1e-14
