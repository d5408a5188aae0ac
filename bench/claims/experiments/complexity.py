"""Claim 14: n² against n·d², in operations, bytes and time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from ....models.attention import Softmax
from ....models.feedforward import MLP
from ....models.presets import PRESETS
from ..outcome import Claim, Part, Watch
from ..tools import exponent, layer, listed, medians, operations, peak_bytes

DIM, HEADS = 64, 1
LENGTHS = (128, 256, 512, 1024, 2048, 4096)
LONG = (1024, 2048, 4096)


def experiment(watch: Watch) -> Sequence[Part]:
    """One attention layer (its projections taken off) and one feed-forward layer, 64 wide."""
    config = PRESETS["gpt2"].scaled(dim=DIM, heads=HEADS, layers=1)
    ffn = MLP("gelu", 4 * DIM).build(config).requires_grad_(False)
    attention = layer(Softmax(), dim=DIM, heads=HEADS)
    inputs = {n: torch.randn(1, n, DIM) for n in LENGTHS}
    scores = {n: operations(attention(n)) - 8 * n * DIM**2 for n in LENGTHS}
    forward = {n: operations(partial(ffn, inputs[n])) for n in LENGTHS}
    matrix = {n: peak_bytes(attention(n)) for n in (1024, 4096)}
    calls = {f"attention {n}": attention(n) for n in LENGTHS} | {
        f"ffn {n}": lambda n=n: ffn(inputs[n]) for n in LENGTHS
    }
    times = watch(calls, 0.25)
    timed, plain = medians(times, LENGTHS, "attention"), medians(times, LENGTHS, "ffn")
    slopes = exponent({n: timed[n] for n in LONG}), exponent({n: plain[n] for n in LONG})
    cross = crossing({n: scores[n] / forward[n] for n in LENGTHS})
    ratio = matrix[4096] / matrix[1024]
    span = f"{LONG[0]}…{LONG[-1]}"
    return (
        Part("Attention's scores are O(n²·d), the feed-forward layer O(n·d²) in operations",
             abs(exponent(scores) - 2) < 0.01 and abs(exponent(forward) - 1) < 0.01,
             f"exponents {exponent(scores):.2f} and {exponent(forward):.2f} over n = {LENGTHS[0]}…{LENGTHS[-1]}"),
        Part("So is their time", slopes[0] > 1.5 and slopes[1] < 1.3,
             f"exponents of time over n = {span}: attention {slopes[0]:.2f}, feed-forward {slopes[1]:.2f} (torch)"),
        Part("The feed-forward layer dominates at small n, attention at large n, crossing where the terms are equal",
             scores[LENGTHS[0]] < forward[LENGTHS[0]] and timed[LENGTHS[-1]] > plain[LENGTHS[-1]] and cross == 4 * DIM,
             f"equal operations at n = {cross:g} = {cross / DIM:g}·d; time of attention / feed-forward by n: "
             f"{listed({n: timed[n] / plain[n] for n in LENGTHS}, '.2f')}"),
        Part("Four times the tokens cost the score matrix 16 times (as 4K → 16K)", 15 < ratio < 17,
             f"peak bytes of one head at n = 1024 and 4096: {matrix[1024]:,} and {matrix[4096]:,}, {ratio:.1f}×"),
    )  # fmt: skip


def crossing(ratios: dict[int, float]) -> float:
    """Where a ratio that grows like n is 1."""
    n, ratio = next(iter(ratios.items()))
    return n / ratio


CLAIMS = (
    Claim(
        key="14",
        statement="Self-attention is O(n²·d), the feed-forward layer O(n·d²): it dominates at small n, attention at "
        "large n; 4K → 16K costs the score matrix 16 times.",
        experiment=experiment,
    ),
)
