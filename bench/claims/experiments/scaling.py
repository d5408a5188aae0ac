"""Claim 1: why scores are divided by √d."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ....models.attention import scaled
from ..outcome import Claim, Part, Watch
from ..tools import listed

DIMS = (16, 64, 256)
KEYS = 10
DRAWS = 5000


def experiment(_: Watch) -> Sequence[Part]:
    """Scores of standard normal queries and keys, before and after division."""
    raw, divided, sharp, gradient = {}, {}, {}, {}
    for d in DIMS:
        q, k = torch.randn(DRAWS, 1, d, dtype=torch.float64), torch.randn(DRAWS, KEYS, d, dtype=torch.float64)
        both = {"raw": q @ k.transpose(1, 2), "divided": scaled(q, None) @ k.transpose(1, 2)}  # DRAWS, 1, KEYS
        raw[d], divided[d] = float(both["raw"].var()), float(both["divided"].var())
        if d == 64:
            sharp = {name: float((scores.softmax(-1).amax(-1) > 0.9).double().mean()) for name, scores in both.items()}
            gradient = {name: _gradient(scores) for name, scores in both.items()}
    relative = {d: variance / d for d, variance in raw.items()}
    return (
        Part("The variance of Q·K is d", _near(relative), f"variance / d by d: {listed(relative)} ({DRAWS} draws)"),
        Part("Divided by √d it is 1", _near(divided), f"variance by d: {listed(divided)}"),
        Part(
            "Softmax saturates without it and not with it",
            sharp["raw"] > 0.5 > 0.05 > sharp["divided"] and gradient["divided"] > 2 * gradient["raw"],
            f"d = 64, {KEYS} keys: one weight above 0.9 in {sharp['raw']:.1%} of the draws without, "
            f"{sharp['divided']:.1%} with; mean norm of softmax's derivative {gradient['raw']:.3f} and "
            f"{gradient['divided']:.3f}",
        ),
    )


def _near(values: dict[int, float]) -> bool:
    return all(abs(value - 1) < 0.05 for value in values.values())


def _gradient(scores: torch.Tensor) -> float:
    """The mean Frobenius norm of d softmax / d scores, which is diag(p) - p·pᵀ."""
    p = scores.softmax(-1)  # DRAWS, 1, KEYS
    return float((torch.diag_embed(p.squeeze(1)) - p.transpose(1, 2) @ p).norm(dim=(1, 2)).mean())


CLAIMS = (
    Claim(
        key="1",
        statement="Q·K has variance d; dividing by √d brings it to 1, and softmax stops saturating.",
        experiment=experiment,
    ),
)
