"""How operators of our own, and those that the exporter does not know, are written in ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset18

from ..models import recurrent  # noqa: F401  (defines isorun::lstm and isorun::rnn)

op: Any = opset18  # typed for tensors alone, but it takes constants as well


def lstm(x: Any, hidden: Any, cell: Any, weight_input: Any, weight_hidden: Any, bias: Any) -> tuple[Any, Any]:
    """isorun::lstm as the LSTM operator: time first, gates in the order i, o, f, g, one direction."""
    weights = (op.Unsqueeze(_reorder(weight), [0]) for weight in (weight_input, weight_hidden))
    gates = op.Unsqueeze(_reorder(bias), [0])
    biases = op.Concat(gates, op.Mul(gates, 0.0), axis=1)  # input and hidden bias; ours has the sum in the first
    y, _, last = op.LSTM(
        op.Transpose(x, perm=[1, 0, 2]),
        *weights,
        biases,
        None,
        op.Unsqueeze(hidden, [0]),
        op.Unsqueeze(cell, [0]),
        hidden_size=int(weight_hidden.shape[1]),
    )
    return op.Transpose(op.Squeeze(y, [1]), perm=[1, 0, 2]), op.Squeeze(last, [0])


def rnn(x: Any, hidden: Any, weight_input: Any, weight_hidden: Any, bias: Any) -> Any:
    """isorun::rnn as the RNN operator, whose activation is tanh: time first, one direction."""
    row = op.Unsqueeze(bias, [0])
    biases = op.Concat(row, op.Mul(row, 0.0), axis=1)  # as above
    weights = (op.Unsqueeze(weight, [0]) for weight in (weight_input, weight_hidden))
    start = op.Unsqueeze(hidden, [0])
    steps = op.Transpose(x, perm=[1, 0, 2])
    y, _ = op.RNN(steps, *weights, biases, None, start, hidden_size=int(weight_hidden.shape[1]))
    return op.Transpose(op.Squeeze(y, [1]), perm=[1, 0, 2])


def _reorder(weight: Any) -> Any:
    """Rows i, f, g, o as torch has them → i, o, f, g as ONNX wants them."""
    i, f, g, o = op.Split(weight, num_outputs=4, axis=0)
    return op.Concat(i, o, f, g, axis=0)


LOWERINGS: dict[Any, Callable[..., Any]] = {torch.ops.isorun.lstm.default: lstm, torch.ops.isorun.rnn.default: rnn}
