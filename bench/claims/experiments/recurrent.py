"""Claim 20: one token after another against all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ....models.attention import Softmax
from ....models.config import Mixer
from ....models.presets import PRESETS
from ....models.recurrent import LSTM, RNN
from ..outcome import Claim, Part, Watch
from ..tools import listed

DIM = 64
LENGTHS = (8, 32, 128)


def experiment(_: Watch) -> Sequence[Part]:
    """What reaches the last token from the first, and which tokens it passes on its way."""
    n = LENGTHS[-1]
    recurrent: dict[str, Mixer] = {"rnn": RNN(), "lstm": LSTM()}
    cut = {name: broken(mixer, n) for name, mixer in recurrent.items()}
    reach = {name: influence(mixer) for name, mixer in (*recurrent.items(), ("attention", Softmax()))}
    direct = alone(n)
    sequential = {name: _sequential(mixer, n) for name, mixer in recurrent.items()}
    return (
        Part(
            "An RNN and an LSTM take n steps, each from the state before",
            max(sequential.values()) < 1e-12,
            f"n = {n}: {n} single steps equal the whole to {listed(sequential, '.1e')} (float64)",
        ),
        Part(
            "Their path from the first token to the last is O(n)",
            all(share == 1.0 for share in cut.values()),
            f"forgetting the state at any one of {n - 1} places in between takes away all influence: "
            f"{listed(cut, '.0%')} of the places",
        ),
        Part(
            "Attention's path is O(1)",
            direct > 1e-6,
            f"one layer, tokens 2 … {n - 1} hidden from the last: the first changes it by {direct:.2g} of its rms",
        ),
        Part(
            "Over a long way an RNN forgets, attention does not",
            reach["rnn"][n] < 1e-3 * reach["attention"][n],
            "; ".join(f"{name}, change at the end by n: {listed(found, '.1e')}" for name, found in reach.items()),
        ),
    )


def _mixer(mixer: Mixer) -> Any:
    """One layer with random weights of order 1."""
    config = PRESETS["lstm" if isinstance(mixer, LSTM | RNN) else "gpt2"].scaled(dim=DIM, heads=4, layers=1)
    module: Any = mixer.build(config, causal=True).double().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    if hasattr(module, "initialise"):
        module.initialise(generator)
    return module


def _run(module: Any, x: Tensor, past: Any = ()) -> tuple[Tensor, Any]:
    keys = x.shape[1] + (past[0].shape[2] if past and past[0].dim() == 4 else 0)
    result: tuple[Tensor, Any] = module(
        x, module.plan(torch.ones(1, keys, dtype=torch.int64), x.shape[1]), lambda t: t, past
    )
    return result


def _inputs(n: int) -> tuple[Tensor, Tensor]:
    """A sequence, and the same with another first token."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1, n, DIM, generator=generator, dtype=torch.float64)
    other = x.clone()
    other[:, 0] = torch.randn(1, DIM, generator=generator, dtype=torch.float64)
    return x, other


def influence(mixer: Mixer) -> Mapping[int, float]:
    """By n: how much the last output changes with the first token, over its rms."""
    module, changes = _mixer(mixer), {}
    for n in LENGTHS:
        before, after = (_run(module, x)[0][:, -1] for x in _inputs(n))
        changes[n] = float((after - before).norm() / before.norm())
    return changes


def broken(mixer: Mixer, n: int) -> float:
    """The share of places between two tokens at which forgetting the state takes away all influence of the first."""
    module, inputs = _mixer(mixer), _inputs(n)
    cuts = [torch.equal(*(_run(module, x[:, place:])[0][:, -1] for x in inputs)) for place in range(1, n)]
    return sum(cuts) / len(cuts)


def alone(n: int) -> float:
    """One attention layer whose last token sees the first and itself: how much the first changes it."""
    module = _mixer(Softmax())
    mask = torch.zeros(n, n, dtype=torch.bool)
    mask.fill_diagonal_(True)
    mask[-1, 0] = True
    before, after = (module(x, mask, lambda t: t, ())[0][:, -1] for x in _inputs(n))
    return float((after - before).norm() / before.norm())


def _sequential(mixer: Mixer, n: int) -> float:
    """The largest difference between n single steps and one call."""
    module, (x, _other) = _mixer(mixer), _inputs(n)
    whole, state, gap = _run(module, x)[0], (), 0.0
    for place in range(n):
        y, state = _run(module, x[:, place : place + 1], state)
        gap = max(gap, float((y[:, 0] - whole[:, place]).abs().max()))
    return gap


CLAIMS = (
    Claim(
        key="20",
        statement="RNN and LSTM: O(n) sequential steps and a path of length O(n); Transformer: a path of length O(1), "
        "all tokens at once.",
        experiment=experiment,
    ),
)
