"""Claims 4, 5 and 6: what position encodings promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ....models.position import Rope, Sinusoidal, turn_halves
from ....models.presets import PRESETS
from ....models.rope_scaling import exact_frequencies
from ....models.transformer import build
from ..outcome import Claim, Part, Watch
from ..tools import decode, ids, listed, most, preset

SIZE = 128
FAR = 4096


def sinusoidal(_: Watch) -> Sequence[Part]:
    """Inner products of encodings a fixed distance apart, in float64."""
    config = PRESETS["transformer-base"]
    positions = torch.arange(FAR)[None]
    zeros = torch.zeros(1, FAR, config.dim, dtype=torch.float64)
    table = Sinusoidal().build(config).double()(zeros, positions)[0]  # FAR, dim
    spread = {}
    for k in (1, 3, 64):
        products = (table[:-k] * table[k:]).sum(-1)
        spread[k] = float(products.max() - products.min())
    said = f"largest minus smallest product over {FAR} positions, by k: {listed(spread)} (d = {config.dim})"
    return (Part("PE(p)·PE(p + k) does not depend on p", max(spread.values()) < 1e-6, said),)


def _turned(x: Tensor, positions: Tensor, layout: Any = "half") -> Tensor:
    """x (1, 1, m, SIZE) at positions (m), turned by the model's own RoPE in float64."""
    config = PRESETS["llama-7b"].scaled(dim=SIZE, heads=1)
    encoding: Any = Rope(layout=layout).build(config).double()
    turned: Tensor = encoding.rotation(positions[None])(x)
    return turned


def _pair(n: int) -> tuple[Tensor, Tensor]:
    """One query and one key, n times."""
    q, k = torch.randn(2, 1, 1, 1, SIZE, dtype=torch.float64).expand(2, 1, 1, n, SIZE)
    return q, k


def rope(_: Watch) -> Sequence[Part]:
    """Scores along diagonals, norms, decay with distance, and the two layouts."""
    n, gap = 512, 37
    at = torch.arange(n)
    q, k = _pair(n)
    diagonal = (_turned(q, at + gap) * _turned(k, at)).sum(-1)
    norms = _turned(q, at).norm(dim=-1)
    order = torch.cat((torch.arange(0, SIZE, 2), torch.arange(1, SIZE, 2)))  # pairs (2i, 2i + 1) → (i, i + d/2)
    layouts = most(_turned(q, at, "interleaved")[..., order], _turned(q[..., order], at))
    return (
        Part(
            "The score depends on the distance alone",
            float(diagonal.max() - diagonal.min()) < 1e-9,
            f"distance {gap}, {n} positions, d = {SIZE}: scores differ by {float(diagonal.max() - diagonal.min()):.1e}",
        ),
        Part(
            "The norm is kept",
            float(norms.max() - norms.min()) < 1e-9,
            f"norms differ by {norms.max() - norms.min():.1e}",
        ),
        Part("Both layouts are one function up to a permutation", layouts < 1e-9, f"largest difference {layouts:.1e}"),
        *_decay(),
    )


def _decay() -> Sequence[Part]:
    """Mean |score| near and far: for a key like the query, and for an unrelated one."""
    near, far, draws = torch.arange(1, 17), torch.arange(2049, 4097), 40
    like, unlike = {}, {}
    for name, distances in (("near", near), ("far", far)):
        turns = torch.outer(distances.double(), exact_frequencies(SIZE, 10_000.0))  # distances, SIZE/2
        cos, sin = turns.cos(), turns.sin()
        q, k = (torch.randn(draws, 1, SIZE, dtype=torch.float64) for _ in range(2))
        like[name] = float((q * turn_halves(q, cos, sin)).sum(-1).abs().mean()) / SIZE
        unlike[name] = float((k * turn_halves(q, cos, sin)).sum(-1).square().mean().sqrt()) / SIZE**0.5
    where = f"distances 1–16 against 2049–4096, {draws} draws"
    return (
        Part(
            "The score of a key equal to the query decays with distance",
            like["far"] < 0.5 * like["near"],
            f"mean |score| / d {like['near']:.2f} near, {like['far']:.2f} far ({where})",
        ),
        Part(
            "The score of any key decays with distance",
            unlike["far"] < 0.8 * unlike["near"],
            f"unrelated keys: rms score / √d {unlike['near']:.2f} near, {unlike['far']:.2f} far: a rotation keeps it",
        ),
    )


def beyond(_: Watch) -> Sequence[Part]:
    """Twice the context on a model of each kind, in one pass."""
    parts = []
    for kind, name in (("ALiBi", "bloom-7b1"), ("RoPE", "llama-7b")):
        config = preset(name)
        logits, _cache = decode(build(config), ids(config, 2 * config.context))
        fine = bool(torch.isfinite(logits).all())
        said = f"{name}, context {config.context}: {2 * config.context} tokens, all logits finite: {fine}"
        parts.append(
            Part(f"{kind} runs beyond the trained length (random weights: nothing is said of quality)", fine, said)
        )
    config = preset("gpt2")
    return (
        *parts,
        Part(
            "A learned table refuses", (refusal := _refusal(config)) != "", f"gpt2 at {config.context + 1}: {refusal}"
        ),
    )


def _refusal(config: Any) -> str:
    try:
        decode(build(config), ids(config, config.context + 1))
    except IndexError as error:
        return f"IndexError: {error}"
    return ""


CLAIMS = (
    Claim(key="4", statement="Sinusoidal: PE(p)·PE(p + k) does not depend on p.", experiment=sinusoidal),
    Claim(
        key="5",
        statement="RoPE: the score depends on the distance only and decays with it; norms are kept; both layouts are "
        "one function up to a permutation of the weights.",
        experiment=rope,
    ),
    Claim(
        key="6",
        statement="ALiBi and RoPE run beyond the trained length; a learned table refuses.",
        experiment=beyond,
    ),
)
