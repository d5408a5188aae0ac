"""Dynamic int8, held to the arithmetic written out in NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from isorun.export.finish import derive
from isorun.export.precision import Quantisation, convert
from isorun.export.precision.evaluate import evaluate
from isorun.export.precision.integer import quantise

from ...conftest import Exported
from .graphs import FLOAT, INT64, graph, node, ops

RNG = np.random.default_rng(1)
X = RNG.standard_normal((5, 24)).astype(np.float32)
W = RNG.standard_normal((24, 16)).astype(np.float32) * np.linspace(0.1, 3, 16, dtype=np.float32)
B = RNG.standard_normal(16).astype(np.float32)


def dynamic(x: np.ndarray) -> np.ndarray:
    """x as DynamicQuantizeLinear rounds it (ONNX operator documentation): 256 steps over a range that holds 0."""
    low, high = min(x.min(), 0.0), max(x.max(), 0.0)
    scale = (high - low) / 255
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale


def rounded(rows: np.ndarray, peak: np.ndarray) -> np.ndarray:
    return np.rint(rows / (peak / 127)) * (peak / 127)


@pytest.mark.parametrize("per_channel", [True, False])
def test_a_product_is_that_of_rounded_factors(per_channel: bool) -> None:
    model = graph([node("MatMul", ["x", "w"], "y")], {"x": (FLOAT, ("n", 24))}, {"y": (FLOAT, ("n", 16))}, {"w": W})
    convert(model, "int8", options=Quantisation(per_channel=per_channel))
    found = evaluate(ir.to_proto(model), {"x": X})["y"]
    peak = np.abs(W).max(axis=0 if per_channel else None).astype(np.float64)
    assert np.allclose(found, dynamic(X) @ rounded(W.astype(np.float64), peak), atol=1e-5)


def test_gemm_keeps_its_bias_and_its_transposed_weight() -> None:
    model = graph(
        [node("Gemm", ["x", "w", "b"], "y", transB=1)], {"x": (FLOAT, (5, 24))}, {"y": (FLOAT, (5, 16))},
        {"w": W.T.copy(), "b": B},
    )  # fmt: skip
    convert(model, "int8")
    assert "Gemm" not in ops(model)
    peak = np.abs(W).max(axis=0).astype(np.float64)
    assert np.allclose(evaluate(ir.to_proto(model), {"x": X})["y"], dynamic(X) @ rounded(W, peak) + B, atol=1e-5)


def test_quantised_weights_are_within_half_a_step_and_zeros_stay() -> None:
    rows = np.vstack([W.T, np.zeros((1, 24), np.float32)])
    integers, scale = quantise(rows, per_channel=True)
    assert integers.dtype == np.int8
    assert np.abs(integers).max() == 127
    assert (np.abs(integers * scale[:, None] - rows) <= scale[:, None] * 0.5001).all()
    assert not integers[-1].any()


def test_a_tied_table_is_stored_once_and_looked_up_in_int8() -> None:
    table = RNG.standard_normal((40, 24)).astype(np.float32)
    model = graph(
        [node("Gather", ["table", "ids"], "x"), node("Transpose", ["table"], "t", perm=[1, 0]),
         node("MatMul", ["x", "t"], "y")],
        {"ids": (INT64, ("b", "n"))}, {"y": (FLOAT, ("b", "n", 40))}, {"table": table},
    )  # fmt: skip
    convert(model, "int8")
    stored = {value.const_value.dtype: value.const_value.nbytes for value in model.graph.initializers.values()}  # type: ignore[union-attr]
    assert stored[ir.DataType.INT8] == table.size
    assert stored[ir.DataType.FLOAT] == 40 * 4, "of float32 nothing but the scales is left"
    ids = np.array([[0, 7], [39, 7]])
    rows = rounded(table.astype(np.float64), np.abs(table).max(axis=1, keepdims=True).astype(np.float64))
    assert np.allclose(evaluate(ir.to_proto(model), {"ids": ids})["y"], dynamic(rows[ids]) @ rows.T, atol=0.05)


def test_a_matrix_with_another_reader_stays_and_is_named() -> None:
    model = graph(
        [node("MatMul", ["x", "w"], "a"), node("ReduceSum", ["w"], "s", keepdims=0), node("Add", ["a", "s"], "y")],
        {"x": (FLOAT, (5, 24))}, {"y": (FLOAT, (5, 16))}, {"w": W},
    )  # fmt: skip
    assert convert(model, "int8")[-1].startswith("w stays in float32")
    assert "MatMul" in ops(model)


@pytest.mark.parametrize("name", ["gpt2", "llama3-8b"])
def test_an_exported_model_keeps_attention_and_every_linear_layer_is_int8(
    exported: Exported, tmp_path: Path, name: str
) -> None:
    single = exported(name, "step")
    eight = derive(single, "int8", tmp_path / "int8")
    assert eight.ops["Attention"] == single.ops["Attention"]
    assert eight.ops["MatMulInteger"] == single.ops["MatMul"]
    assert "MatMul" not in eight.ops
    assert eight.signature() == single.signature()
    assert all(1e-3 < error < 0.1 for error in eight.errors.values())
