"""What the modules are compared with: the papers' formulas in plain NumPy, float64, with nothing skipped.

Shapes: B batch, m queries, t keys, H heads, G key heads, D head_dim.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from isorun.models.config import ModelConfig
from isorun.models.presets import PRESETS

Array = NDArray[np.float64]


def tiny(config: ModelConfig) -> ModelConfig:
    """At `tiny`, with a table of positions that the lengths of these tests fit in."""
    at = config.at("tiny")
    return at if at.max_tokens is None or at.max_tokens >= 128 else at.scaled(context=128)


def architectures() -> dict[str, ModelConfig]:
    """The presets at `tiny`, without those that differ from an earlier one in their published sizes alone."""
    configs = {name: tiny(config) for name, config in PRESETS.items()}
    first = {replace(config, name="", source=""): name for name, config in reversed(configs.items())}
    return {name: configs[name] for name in reversed(first.values())}


def array(tensor: Tensor) -> Array:
    return tensor.detach().numpy()


def distance(got: Tensor | Array, expected: Tensor | Array) -> float:
    """The largest difference, as a share of the largest expected value; NaN where anything is NaN."""
    a, b = (array(x) if isinstance(x, Tensor) else x for x in (got, expected))
    assert a.dtype == b.dtype == np.float64
    assert a.shape == b.shape
    return float(np.abs(a - b).max() / np.abs(b).max())


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Another library's model in float64 with weights that let every part matter: see `initialise`."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.double().named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if parameter.dim() > 1:
            parameter.data = noise * parameter.shape[-1] ** -0.5
        else:
            parameter.data = 0.1 * noise + (1.0 if name.endswith("weight") else 0.0)
    return model.eval()


def left_padded(lengths: list[int]) -> NDArray[np.int64]:
    """A mask (B, longest) with 1 at the last `lengths` columns of each row."""
    longest = max(lengths)
    return (np.arange(longest) >= longest - np.array(lengths)[:, None]).astype(np.int64)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    result: Array = e / e.sum(-1, keepdims=True)
    return result


def linear(x: Array, layer: nn.Module) -> Array:
    y: Array = x @ array(layer.weight).T
    return y if layer.bias is None else y + array(layer.bias)


def split(x: Array, head_dim: int) -> Array:
    """(B, m, heads·D) -> (B, heads, m, D)."""
    return x.reshape(*x.shape[:2], -1, head_dim).swapaxes(1, 2)


def merge(x: Array) -> Array:
    """(B, heads, m, D) -> (B, m, heads·D)."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def attention(q: Array, k: Array, v: Array, allowed: NDArray[np.bool_]) -> Array:
    """softmax(q·kᵀ/√D)·v over all keys, -inf where not allowed (B, 1, m, t); head h reads key head h·G // H."""
    head = np.arange(q.shape[1]) * k.shape[1] // q.shape[1]
    scores = q @ k[:, head].swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(np.where(allowed, scores, -np.inf)) @ v[:, head]


def causal(mask: NDArray[np.int64], queries: int, window: int | None = None) -> NDArray[np.bool_]:
    """Which keys of `mask` (B, t) the last queries see, (B, 1, m, t): real and not later, and the token itself."""
    keys = mask.shape[1]
    gap = np.arange(keys - queries, keys)[:, None] - np.arange(keys)
    near = (gap >= 0) & (gap < (window or keys))
    return (mask[:, None, None, :] > 0) & near | (gap == 0)


def sinusoids(positions: NDArray[np.int64], frequencies: Array) -> Array:
    """(..., 2·len(frequencies)): sine and cosine of each angle, next to each other."""
    angles = positions[..., None] * frequencies
    return np.stack((np.sin(angles), np.cos(angles)), -1).reshape(*positions.shape, -1)


def frequencies(dim: int, base: float) -> Array:
    """base^(-2i/dim), one by one, in float64."""
    return np.array([base ** (-2 * i / dim) for i in range(dim // 2)])


def float32(x: Array) -> Array:
    """Rounded to float32 and back: the frequencies that the modules keep."""
    return x.astype(np.float32).astype(np.float64)
