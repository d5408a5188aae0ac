"""Operators in float64 against torch in float64: normalizations, activations, indexing; and ONNX's own node tests."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from isorun.runtimes.base import RuntimeFailure
from isorun.runtimes.reference import Float64Graph
from isorun.runtimes.reference_ops import operators

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 5, 8)) * 3
SMALL = RNG.standard_normal((3, 5, 8)) * 0.02  # as small as initial embeddings: here the exact value of ε shows
SCALE, BIAS = RNG.standard_normal(8), RNG.standard_normal(8)
T = torch.from_numpy


def close(got: np.ndarray, expected: torch.Tensor | np.ndarray, limit: float = 1e-12) -> bool:
    expected = np.asarray(expected)
    return (
        got.dtype == np.float64
        and got.shape == expected.shape
        and bool(np.abs(got - expected).max() <= limit * max(np.abs(expected).max(), 1e-300))
    )


@pytest.mark.parametrize("x", [X, SMALL], ids=["wide", "small"])
@pytest.mark.parametrize("eps", [1e-5, 1e-6, 1e-12])
def test_layer_normalization(evaluate: Callable, x: np.ndarray, eps: float) -> None:
    y, mean, inverse = evaluate("LayerNormalization", {"x": x, "w": SCALE, "b": BIAS}, outputs=3, epsilon=eps)
    assert close(y, F.layer_norm(T(x), (8,), T(SCALE), T(BIAS), eps))
    assert close(mean, T(x).mean(-1, keepdim=True))
    assert close(inverse, 1 / (T(x).var(-1, keepdim=True, correction=0) + eps).sqrt())


def test_layer_normalization_over_two_axes_without_bias(evaluate: Callable) -> None:
    weight = RNG.standard_normal((5, 8))
    (y,) = evaluate("LayerNormalization", {"x": X, "w": weight}, axis=1, stash_type=1, opset=17)
    assert close(y, F.layer_norm(T(X), (5, 8), T(weight)))


@pytest.mark.parametrize("x", [X, SMALL], ids=["wide", "small"])
@pytest.mark.parametrize("eps", [1e-5, 1e-6])
def test_rms_normalization(evaluate: Callable, x: np.ndarray, eps: float) -> None:
    (y,) = evaluate("RMSNormalization", {"x": x, "w": SCALE}, epsilon=eps)
    assert close(y, F.rms_norm(T(x), (8,), T(SCALE), eps))


def test_epsilon_matters(evaluate: Callable) -> None:
    (y,) = evaluate("RMSNormalization", {"x": SMALL, "w": SCALE}, epsilon=1e-6)
    assert not close(y, F.rms_norm(T(SMALL), (8,), T(SCALE), 1e-5), 1e-4)


@pytest.mark.parametrize(
    ("op", "attributes", "expected"),
    [
        ("Erf", {}, torch.erf),
        ("Gelu", {}, F.gelu),
        ("Gelu", {"approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh")),
        ("HardSwish", {}, F.hardswish),
        ("Softmax", {"axis": 1}, lambda x: x.softmax(1)),
        ("LogSoftmax", {}, lambda x: x.log_softmax(-1)),
        ("Sigmoid", {}, torch.sigmoid),
        ("Tanh", {}, torch.tanh),
        ("Softplus", {}, F.softplus),
        ("Mish", {}, F.mish),
        ("Swish", {"opset": 24}, F.silu),
        ("Sin", {}, torch.sin),
        ("Exp", {}, torch.exp),
        ("Relu", {}, torch.relu),
    ],
)
def test_unary(evaluate: Callable, op: str, attributes: dict[str, Any], expected: Callable) -> None:
    (y,) = evaluate(op, {"x": X}, **attributes)
    assert close(y, expected(T(X)))


def test_log_softmax_far_below_the_smallest_double(evaluate: Callable) -> None:
    """exp(-2000) is 0, its log -inf: the reference's own formula gives that, the right one does not."""
    (y,) = evaluate("LogSoftmax", {"x": np.array([[0.0, -2000.0, 5.0]])})
    assert close(y, torch.tensor([[0.0, -2000.0, 5.0]], dtype=torch.float64).log_softmax(-1))


@pytest.mark.parametrize(
    ("op", "inputs", "expected"),
    [
        ("Pow", {"x": np.abs(X), "y": np.array(1.7)}, T(np.abs(X)) ** 1.7),
        ("Pow", {"x": X, "y": np.array(2, np.int64)}, T(X) ** 2),
        ("Sqrt", {"x": np.abs(X)}, T(np.abs(X)).sqrt()),
        ("Clip", {"x": X, "low": np.array(-0.1), "high": np.array(0.3)}, T(X).clamp(-0.1, 0.3)),
        ("Where", {"c": X > 0, "x": X, "y": np.array(0.1)}, torch.where(T(X) > 0, T(X), 0.1)),
        ("Einsum", {"x": X, "y": X}, torch.einsum("bij,bkj->bik", T(X), T(X))),
        ("Gather", {"x": X, "i": np.array([[4, 0], [1, -1]])}, T(X)[:, torch.tensor([[4, 0], [1, -1]])]),
        ("Cast", {"x": np.array([1, -2, 2**40 + 1])}, torch.tensor([1, -2, 2**40 + 1], dtype=torch.float64)),
    ],
)
def test_constants_and_indices(
    evaluate: Callable, op: str, inputs: dict[str, np.ndarray], expected: torch.Tensor
) -> None:
    attributes: dict[str, Any] = {"Einsum": {"equation": "bij,bkj->bik"}, "Gather": {"axis": 1}, "Cast": {"to": 1}}
    (y,) = evaluate(op, inputs, **attributes.get(op, {}))
    assert close(y, expected)


@pytest.mark.parametrize("axis", [1, -2])
def test_gather_elements_beyond_64_rows(evaluate: Callable, axis: int) -> None:
    data, indices = RNG.standard_normal((3, 100, 4)), RNG.integers(-100, 100, (2, 70, 3))
    (y,) = evaluate("GatherElements", {"x": data, "i": indices}, axis=axis)
    assert close(y, T(data)[:2, :, :3].gather(1, T(indices % 100)))


def test_gather_nd(evaluate: Callable) -> None:
    data = RNG.standard_normal((3, 5, 8, 2))
    i, j = RNG.integers(0, 3, (6, 7)), RNG.integers(-5, 5, (6, 7))
    (y,) = evaluate("GatherND", {"x": data, "i": np.stack((i, j), -1)})
    assert close(y, T(data)[T(i), T(j)])


def test_gather_nd_with_a_batch(evaluate: Callable) -> None:
    data, index = RNG.standard_normal((3, 5, 8, 2)), RNG.integers(0, 8, (3, 5, 4, 1))
    (y,) = evaluate("GatherND", {"x": data, "i": index}, batch_dims=2)
    assert close(y, T(data).gather(2, T(index).expand(3, 5, 4, 2)))


@pytest.mark.parametrize("reduction", ["none", "add", "mul"])
def test_scatter_nd(evaluate: Callable, reduction: str) -> None:
    rows = np.array([[4], [0], [2]] if reduction == "none" else [[4], [0], [4]])
    updates = RNG.standard_normal((3, 8))
    (y,) = evaluate("ScatterND", {"x": X[0], "i": rows, "u": updates}, reduction=reduction)
    expected = X[0].copy()
    for row, update in zip(rows[:, 0], updates, strict=True):
        expected[row] = {"none": update, "add": expected[row] + update, "mul": expected[row] * update}[reduction]
    assert close(y, expected)


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scatter_elements(evaluate: Callable, reduction: str) -> None:
    index, updates = np.array([[[1, 0, 3]], [[2, 2, 4]]]), RNG.standard_normal((2, 1, 3))
    (y,) = evaluate("ScatterElements", {"x": X, "i": index, "u": updates}, axis=1, reduction=reduction)
    write = T(X).clone().scatter if reduction == "none" else T(X).clone().scatter_add
    assert close(y, write(1, T(index), T(updates)))


@pytest.mark.parametrize("op", ["LinearAttention", "GridSample"])
def test_what_the_reference_computes_in_float32_is_refused(op: str) -> None:
    (implementation,) = (cls for cls in operators() if cls.__name__ == op)
    with pytest.raises(NotImplementedError, match="computes it in float32"):
        implementation._run(None, X)  # type: ignore[attr-defined]


def onnx_node_tests() -> list[Any]:
    """The node tests that ONNX publishes for the operators replaced here, and for RotaryEmbedding."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the collection runs float16 overflows and divisions by zero on purpose
        cases = collect_testcases(None)
    ours = {cls.__name__ for cls in operators()} | {"RotaryEmbedding"}
    return [case for case in cases if case.model and case.model.graph.node[0].op_type in ours]


def test_onnx_node_tests() -> None:
    """Their expected values are float32 or narrower, so that they check the meaning; the precision is checked above."""
    cases, refused = onnx_node_tests(), set()
    assert len(cases) > 150
    for case in cases:
        inputs, outputs = case.data_sets[0]
        names = [info.name for info in case.model.graph.input]
        try:
            got = Float64Graph(case.model).run(dict(zip(names, inputs, strict=True)))
        except RuntimeFailure:
            refused.add(case.name)
            continue
        for name, expected in zip(got, outputs, strict=True):
            limit = 2e-2 if expected.dtype.itemsize == 2 else 1e-5
            assert got[name].shape == expected.shape, case.name
            assert np.allclose(got[name], expected.astype(np.float64), rtol=limit, atol=limit), case.name
    families = ("causal_conv", "gridsample", "group_normalization", "linear_attention", "lstm_with_peepholes")
    assert {name for name in refused if not name.startswith(tuple(f"test_{family}" for family in families))} == set()
