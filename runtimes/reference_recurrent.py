"""The ONNX operators RNN, GRU and LSTM in NumPy, as PyTorch exports them.

    s steps · b batch · i input size · h hidden size · D directions · G gates (RNN 1, GRU 3: zrh, LSTM 4: iofc)

X (s, b, i), W (D, G·h, i), R (D, G·h, h), B (D, 2·G·h), states (D, b, h) -> Y (s, D, b, h) and the last states
(D, b, h); with `layout` 1 the batch is the first axis of X, Y and the states. Sequence lengths, peepholes, clipping,
coupled gates and other activations are refused, not ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
State = tuple[Array, ...]  # the hidden state first, each (b, h)
Step = Callable[..., State]  # (X_t·Wᵀ + Wb, *state) -> the next state
Cell = Callable[[Array, Array], Step]  # of R (G·h, h) and Rb (G·h)

_REVERSED = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def rnn(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    initial_h: Array | None = None,
    **attributes: Any,
) -> tuple[Array, ...]:
    """H' = f(X·Wᵀ + Wb + H·Rᵀ + Rb), f being Tanh or Relu [Elman 1990]."""
    names = {name.lower() for name in attributes.pop("activations")}
    if names not in ({"tanh"}, {"relu"}):
        raise NotImplementedError(f"activations {', '.join(sorted(names))}")
    f: Callable[[Array], Array] = np.tanh if names == {"tanh"} else lambda v: np.maximum(v, 0)

    def cell(r: Array, rb: Array) -> Step:
        return lambda xt, h: (f(xt + h @ r.T + rb),)

    return _run(cell, x, w, r, b, lengths, (initial_h,), attributes)


def gru(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    initial_h: Array | None = None,
    **attributes: Any,
) -> tuple[Array, ...]:
    """H' = (1 - z)·tanh(candidate) + z·H [Cho et al. 2014]; PyTorch's GRU has `linear_before_reset` 1."""
    from scipy.special import expit

    linear_before_reset = attributes.pop("linear_before_reset")
    _expect_activations(attributes, ["sigmoid", "tanh"])

    def cell(r: Array, rb: Array) -> Step:
        size = r.shape[1]
        gates, candidate = r[: 2 * size].T, r[2 * size :].T

        def step(xt: Array, h: Array) -> State:
            z, reset = np.split(expit(xt[:, : 2 * size] + h @ gates + rb[: 2 * size]), 2, axis=-1)
            if linear_before_reset:
                inner = reset * (h @ candidate + rb[2 * size :])
            else:
                inner = (reset * h) @ candidate + rb[2 * size :]
            return ((1 - z) * np.tanh(xt[:, 2 * size :] + inner) + z * h,)

        return step

    return _run(cell, x, w, r, b, lengths, (initial_h,), attributes)


def lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    peepholes: Array | None = None,
    **attributes: Any,
) -> tuple[Array, ...]:
    """C' = f·C + i·tanh(c), H' = o·tanh(C'), gates in the order iofc [Hochreiter & Schmidhuber 1997; Gers 2000]."""
    from scipy.special import expit

    if peepholes is not None or attributes.pop("input_forget"):
        raise NotImplementedError("peepholes or coupled gates")
    _expect_activations(attributes, ["sigmoid", "tanh", "tanh"])

    def cell(r: Array, rb: Array) -> Step:
        size = r.shape[1]

        def step(xt: Array, h: Array, c: Array) -> State:
            gates = xt + h @ r.T + rb
            i, o, f = np.split(expit(gates[:, : 3 * size]), 3, axis=-1)
            c = f * c + i * np.tanh(gates[:, 3 * size :])
            return o * np.tanh(c), c

        return step

    return _run(cell, x, w, r, b, lengths, (initial_h, initial_c), attributes)


def _expect_activations(attributes: dict[str, Any], usual: Sequence[str]) -> None:
    given = attributes.pop("activations") or usual
    if [name.lower() for name in given] != list(usual) * (len(given) // len(usual)):
        raise NotImplementedError(f"activations {', '.join(given)}")


def _run(
    cell: Cell,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lengths: Array | None,
    initial: Sequence[Array | None],
    attributes: dict[str, Any],
) -> tuple[Array, ...]:
    """Every direction in turn: the input's part of all steps as one product, then the steps one by one."""
    if lengths is not None and np.any(lengths != x.shape[attributes["layout"]]):
        raise NotImplementedError("sequences of different lengths")
    if attributes["clip"] is not None:
        raise NotImplementedError("a cell clip")
    batch_first = bool(attributes["layout"])
    x = _swap(x, batch_first)
    zeros = np.zeros((w.shape[0], x.shape[1], r.shape[2]))
    states = [zeros if state is None else _swap(state, batch_first) for state in initial]
    bias = np.zeros((w.shape[0], 2 * w.shape[1])) if b is None else b
    histories, finals = [], []
    for d, backwards in enumerate(_REVERSED[attributes["direction"]]):
        wb, rb = np.split(bias[d], 2)
        history, final = _unroll(cell(r[d], rb), x @ w[d].T + wb, tuple(state[d] for state in states), backwards)
        histories.append(history)
        finals.append(final)
    y = np.stack(histories, axis=1)  # (s, D, b, h)
    last = [_swap(np.stack(state), batch_first) for state in zip(*finals, strict=True)]
    return (y.transpose(2, 0, 1, 3) if batch_first else y, *last)


def _swap(x: Array, batch_first: bool) -> Array:
    return x.swapaxes(0, 1) if batch_first else x


def _unroll(step: Step, inputs: Array, state: State, backwards: bool) -> tuple[Array, State]:
    """All hidden states (s, b, h) in the order of the sequence, and the state after the last step taken."""
    history = []
    for xt in inputs[::-1] if backwards else inputs:
        state = step(xt, *state)
        history.append(state[0])
    return np.stack(history[::-1] if backwards else history), state
