"""Claim 7: what each rule for longer contexts does to the fastest and the slowest pair of a rotary encoding."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose, log

import torch

from ....models.rope_scaling import NTK, DynamicNTK, Linear, RopeScaling, Yarn
from ..outcome import Claim, Part, Watch

SIZE, BASE = 128, 10_000.0
TRAINED, FACTOR = 2048, 4.0


def slowed(rule: RopeScaling, tokens: int = TRAINED) -> tuple[float, float]:
    """How many times slower the fastest and the slowest pair turn under a rule, for so many tokens."""
    table = rule.table(SIZE, BASE)
    rates = rule.rates(table, torch.arange(tokens)[None]).flatten()
    plain = RopeScaling().table(SIZE, BASE)
    return float(plain[0] / rates[0]), float(plain[-1] / rates[-1])


def experiment(_: Watch) -> Sequence[Part]:
    """Frequencies with and without each rule, for four times the trained length."""
    linear, ntk, yarn = slowed(Linear(FACTOR)), slowed(NTK(FACTOR)), slowed(Yarn(FACTOR, TRAINED))
    dynamic = {tokens: slowed(DynamicNTK(FACTOR, TRAINED), tokens) for tokens in (TRAINED, 2 * TRAINED, 4 * TRAINED)}
    temperature = Yarn(FACTOR, TRAINED).temperature
    grown = {tokens: FACTOR * tokens / TRAINED - (FACTOR - 1) for tokens in dynamic}
    return (
        Part(
            "Linear interpolation divides every rotation by L_target / L_train",
            _are(linear, FACTOR, FACTOR),
            _said(linear),
        ),
        Part(
            "NTK-aware base·α^(d/(d-2)) keeps the fastest pair and divides the slowest by α",
            _are(ntk, 1, FACTOR),
            _said(ntk),
        ),
        Part(
            "Dynamic NTK does nothing up to the trained length and grows beyond it",
            all(_are(found, 1, grown[tokens]) for tokens, found in dynamic.items()),
            "; ".join(f"{tokens} tokens: {_said(found)}" for tokens, found in dynamic.items()),
        ),
        Part("YaRN keeps the fastest pair and divides the slowest by the factor", _are(yarn, 1, FACTOR), _said(yarn)),
        Part(
            "YaRN's temperature multiplies cosines and sines by 0.1·ln(s) + 1",
            isclose(temperature, 0.1 * log(FACTOR) + 1),
            f"{temperature:.4f} for s = {FACTOR:g}",
        ),
    )


def _are(found: tuple[float, float], fastest: float, slowest: float) -> bool:
    return isclose(found[0], fastest, rel_tol=1e-6) and isclose(found[1], slowest, rel_tol=1e-6)


def _said(found: tuple[float, float]) -> str:
    return f"fastest {found[0]:.3g}× slower, slowest {found[1]:.3g}×"


CLAIMS = (
    Claim(
        key="7",
        statement="Linear PI m' = m·L_train/L_target, NTK base' = base·α^(d/(d-2)), dynamic NTK and YaRN: what each "
        "does to the rotation of the fastest and the slowest pair (d = 128, 2048 → 8192 tokens).",
        experiment=experiment,
    ),
)
