"""LSTM, GRU and RNN in float64 against torch.nn in float64, weights reordered to ONNX's gates."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from isorun.runtimes.base import RuntimeFailure

STEPS, BATCH, INPUT, HIDDEN = 9, 3, 5, 4
# Torch keeps the gates of an LSTM as ifgo, those of a GRU as rzn; ONNX wants iofc and zrh.
ORDER = {nn.LSTM: [0, 3, 1, 2], nn.GRU: [1, 0, 2], nn.RNN: [0]}


def build(kind: type[nn.RNNBase], bidirectional: bool = False, **options: Any) -> nn.RNNBase:
    torch.manual_seed(0)
    return kind(INPUT, HIDDEN, bidirectional=bidirectional, **options).double()


def weights(module: nn.RNNBase) -> dict[str, np.ndarray]:
    """W (D, G·h, i), R (D, G·h, h), B (D, 2·G·h)."""

    def gather(name: str) -> list[np.ndarray]:
        suffixes = ("_l0", "_l0_reverse") if module.bidirectional else ("_l0",)
        tensors = (getattr(module, name + suffix).detach() for suffix in suffixes)
        order = ORDER[type(module)]
        return [torch.cat([t.chunk(len(order))[gate] for gate in order]).numpy() for t in tensors]

    biases = [np.concatenate(pair) for pair in zip(gather("bias_ih"), gather("bias_hh"), strict=True)]
    return {"w": np.stack(gather("weight_ih")), "r": np.stack(gather("weight_hh")), "b": np.stack(biases)}


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def expected(module: nn.RNNBase, x: np.ndarray, *initial: np.ndarray) -> list[np.ndarray]:
    """Y (s, D, b, h) and the last states (D, b, h)."""
    states = tuple(map(torch.from_numpy, initial))
    with torch.no_grad():
        y, last = module(torch.from_numpy(x), (states if len(states) > 1 else states[0]) if states else None)
    directions = 2 if module.bidirectional else 1
    y = y.unflatten(-1, (directions, HIDDEN)).movedim(2, 1)
    return [y.numpy(), *(state.numpy() for state in (last if isinstance(last, tuple) else (last,)))]


def worst(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    assert [g.shape for g in got] == [w.shape for w in want]
    assert all(g.dtype == np.float64 for g in got)
    return max(float(np.abs(g - w).max()) for g, w in zip(got, want, strict=True))


@pytest.mark.parametrize("opset", [14, 22])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_like_torch(evaluate: Callable, opset: int, bidirectional: bool, initial: bool, op: str) -> None:
    module = build(getattr(nn, op), bidirectional)
    directions, states = 1 + bidirectional, 2 if op == "LSTM" else 1
    first = [draw(directions, BATCH, HIDDEN) * (i + 1) for i in range(states)] if initial else []
    x = draw(STEPS, BATCH, INPUT)
    inputs = {"x": x, **weights(module), "lengths": None, **dict(zip("hc", first, strict=False))}
    got = evaluate(
        op,
        inputs,
        outputs=1 + states,
        opset=opset,
        hidden_size=HIDDEN,
        direction="bidirectional" if bidirectional else "forward",
        **({"linear_before_reset": 1} if op == "GRU" else {}),
    )
    assert worst(got, expected(module, x, *first)) < 1e-14


def test_relu_rnn(evaluate: Callable) -> None:
    module, x = build(nn.RNN, nonlinearity="relu"), draw(STEPS, BATCH, INPUT)
    got = evaluate("RNN", {"x": x, **weights(module)}, outputs=2, hidden_size=HIDDEN, activations=["Relu"])
    assert worst(got, expected(module, x)) < 1e-14


def test_reverse_is_forward_on_the_flipped_sequence(evaluate: Callable) -> None:
    module, x = build(nn.LSTM), draw(STEPS, BATCH, INPUT)
    y, h, c = evaluate("LSTM", {"x": x, **weights(module)}, outputs=3, hidden_size=HIDDEN, direction="reverse")
    flipped = expected(module, np.ascontiguousarray(x[::-1]))
    assert worst([y, h, c], [flipped[0][::-1], *flipped[1:]]) < 1e-14


def test_batch_first(evaluate: Callable) -> None:
    module, x = build(nn.LSTM, True), draw(STEPS, BATCH, INPUT)
    h0, c0 = draw(2, BATCH, HIDDEN), draw(2, BATCH, HIDDEN) * 2
    inputs = {"x": x.swapaxes(0, 1), **weights(module), "lengths": None}
    inputs |= {"h": h0.swapaxes(0, 1), "c": c0.swapaxes(0, 1)}
    got = evaluate("LSTM", inputs, outputs=3, layout=1, hidden_size=HIDDEN, direction="bidirectional")
    y, h, c = expected(module, x, h0, c0)
    assert worst(got, [y.transpose(2, 0, 1, 3), h.swapaxes(0, 1), c.swapaxes(0, 1)]) < 1e-14


def test_gru_that_resets_before_the_product(evaluate: Callable) -> None:
    """ONNX's default, which torch has not: h = tanh(X·Wᵀ + (r ∘ H)·Rᵀ + biases)."""
    parameters, x = weights(build(nn.GRU)), draw(STEPS, BATCH, INPUT)
    y, last = evaluate("GRU", {"x": x, **parameters}, outputs=2, hidden_size=HIDDEN)
    wz, wr, wh = np.split(parameters["w"][0], 3)
    rz, rr, rh = np.split(parameters["r"][0], 3)
    wbz, wbr, wbh, rbz, rbr, rbh = np.split(parameters["b"][0], 6)
    h, steps = np.zeros((BATCH, HIDDEN)), []
    for xt in x:
        z = 1 / (1 + np.exp(-(xt @ wz.T + h @ rz.T + wbz + rbz)))
        reset = 1 / (1 + np.exp(-(xt @ wr.T + h @ rr.T + wbr + rbr)))
        h = (1 - z) * np.tanh(xt @ wh.T + (reset * h) @ rh.T + rbh + wbh) + z * h
        steps.append(h)
    assert worst([y, last], [np.stack(steps)[:, None], h[None]]) < 1e-14


def test_without_bias(evaluate: Callable) -> None:
    module, x = build(nn.LSTM), draw(STEPS, BATCH, INPUT)
    with torch.no_grad():
        module.bias_ih_l0.zero_()
        module.bias_hh_l0.zero_()
    (y,) = evaluate("LSTM", {"x": x, **weights(module), "b": None}, hidden_size=HIDDEN)
    assert worst([y], expected(module, x)[:1]) < 1e-14


@pytest.mark.parametrize(
    ("extra", "attributes", "reason"),
    [
        ({"lengths": np.array([9, 4, 9], np.int32)}, {}, "different lengths"),
        ({"lengths": None, "h": None, "c": None, "p": draw(1, 3 * HIDDEN)}, {}, "peepholes"),
        ({}, {"clip": 1.0}, "cell clip"),
        ({}, {"input_forget": 1}, "coupled gates"),
        ({}, {"activations": ["Sigmoid", "Relu", "Tanh"]}, "activations Sigmoid, Relu, Tanh"),
    ],
)
def test_what_is_not_computed_is_refused(
    evaluate: Callable, extra: dict[str, Any], attributes: dict[str, Any], reason: str
) -> None:
    inputs = {"x": draw(STEPS, BATCH, INPUT), **weights(build(nn.LSTM)), **extra}
    with pytest.raises(RuntimeFailure, match=rf"^LSTM \(out0\): .*{reason}"):
        evaluate("LSTM", inputs, hidden_size=HIDDEN, **attributes)


def test_full_lengths_are_no_lengths(evaluate: Callable) -> None:
    module, x = build(nn.LSTM), draw(STEPS, BATCH, INPUT)
    inputs = {"x": x, **weights(module), "lengths": np.full(BATCH, STEPS, np.int32)}
    (y,) = evaluate("LSTM", inputs, hidden_size=HIDDEN)
    assert worst([y], expected(module, x)[:1]) < 1e-14


def test_a_thousand_steps_take_a_fraction_of_a_second(evaluate: Callable) -> None:
    module, x = build(nn.LSTM), draw(1024, 1, INPUT)
    start = time.perf_counter()
    (y,) = evaluate("LSTM", {"x": x, **weights(module)}, hidden_size=HIDDEN)
    assert time.perf_counter() - start < 2
    assert worst([y], expected(module, x)[:1]) < 1e-13
