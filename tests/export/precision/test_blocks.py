"""Weights in blocks: the packing, held to NumPy, and to what ONNX Runtime makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from isorun.export.finish import derive
from isorun.export.precision import Quantisation, convert
from isorun.export.precision.blocks import quantise
from isorun.export.precision.evaluate import evaluate
from isorun.export.storage import save

from ...conftest import Exported
from .graphs import FLOAT, INT64, graph, node

RNG = np.random.default_rng(2)
EXACT = Quantisation(accuracy_level=0)


def unpacked(packed: np.ndarray, scale: np.ndarray, bits: int, width: int) -> np.ndarray:
    """(N, K) from what the operator's documentation says of its inputs: the first of two numbers is the lower half."""
    n = packed.shape[0]
    whole = packed.astype(np.int64)
    integers = whole if bits == 8 else np.stack([whole % 16, whole // 16], axis=-1).reshape(n, packed.shape[1], -1)
    return ((integers - 2 ** (bits - 1)) * scale[..., None].astype(np.float64)).reshape(n, -1)[:, :width]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("width", [64, 40])
def test_weights_are_within_a_step_and_the_largest_of_a_block_is_exact(bits: int, width: int) -> None:
    rows = RNG.standard_normal((6, width)).astype(np.float32)
    rows[2] = 0
    packed, scale = quantise(rows, bits, 32)
    assert packed.shape == (6, -(-width // 32), 32 * bits // 8)
    back = unpacked(packed, scale, bits, width)
    steps = np.repeat(np.abs(scale), 32, axis=1)[:, :width]
    assert (np.abs(back - rows) <= steps * 1.0001).all()
    assert (np.abs(back - rows) <= steps * 0.5001).mean() > 0.95, "but for the far end of the range it is half a step"
    assert not back[2].any()
    first = rows[0, :32]
    largest = np.abs(first).argmax()
    assert back[0, largest] == pytest.approx(first[largest], rel=1e-6)


@pytest.mark.parametrize("dtype", ["int4", "int8-weights"])
def test_onnx_runtime_reads_the_packing_as_documented(dtype: str) -> None:
    width, bits = 40, 4 if dtype == "int4" else 8
    x, w = RNG.standard_normal((3, width)).astype(np.float32), RNG.standard_normal((width, 10)).astype(np.float32)
    model = graph([node("MatMul", ["x", "w"], "y")], {"x": (FLOAT, ("n", width))}, {"y": (FLOAT, ("n", 10))}, {"w": w})
    convert(model, dtype, options=EXACT)
    truth = x.astype(np.float64) @ unpacked(*quantise(w.T, bits, 32), bits, width).T
    assert np.allclose(evaluate(ir.to_proto(model), {"x": x})["y"], truth, atol=1e-4)


@pytest.mark.parametrize("dtype", ["int4", "int8-weights"])
@pytest.mark.parametrize("width", [64, 40])
def test_a_tied_table_is_looked_up_in_its_blocks(dtype: str, width: int) -> None:
    bits = 4 if dtype == "int4" else 8
    table = RNG.standard_normal((30, width)).astype(np.float32)
    model = graph(
        [node("Gather", ["table", "ids"], "x"), node("Transpose", ["table"], "t", perm=[1, 0]),
         node("MatMul", ["x", "t"], "y")],
        {"ids": (INT64, ("b", "n"))}, {"y": (FLOAT, ("b", "n", 30))}, {"table": table},
    )  # fmt: skip
    convert(model, dtype, options=EXACT)
    assert "table" not in model.graph.initializers
    rows = unpacked(*quantise(table, bits, 32), bits, width)
    ids = np.array([[0, 7], [29, 7]])
    assert np.allclose(evaluate(ir.to_proto(model), {"ids": ids})["y"], rows[ids] @ rows.T, atol=1e-3)


@pytest.mark.parametrize("dtype", ["int4", "int8-weights"])
def test_openvino_looks_up_the_same_rows(tmp_path: Path, dtype: str) -> None:
    """OpenVINO 2026.4 shifts bytes wrongly: halves of a byte taken apart by BitShift were a step off there."""
    openvino = pytest.importorskip("openvino")
    table = RNG.standard_normal((30, 64)).astype(np.float32)
    model = graph(
        [node("Gather", ["table", "ids"], "y"), node("Transpose", ["table"], "t", perm=[1, 0]),
         node("MatMul", ["y", "t"], "logits")],
        {"ids": (INT64, ("b", "n"))}, {"y": (FLOAT, ("b", "n", 64)), "logits": (FLOAT, ("b", "n", 30))},
        {"table": table},
    )  # fmt: skip
    convert(model, dtype, options=EXACT)
    save(model, tmp_path / "m.onnx")
    ids, bits = np.array([[0, 7], [29, 7]]), 4 if dtype == "int4" else 8
    compiled = openvino.Core().compile_model(tmp_path / "m.onnx", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    assert np.allclose(compiled({"ids": ids})["y"], unpacked(*quantise(table, bits, 32), bits, 64)[ids], atol=1e-6)


@pytest.mark.parametrize("size", [8, 33])
def test_a_block_size_that_the_operator_lacks_is_refused(size: int) -> None:
    w = np.ones((64, 8), np.float32)
    model = graph([node("MatMul", ["x", "w"], "y")], {"x": (FLOAT, (1, 64))}, {"y": (FLOAT, (1, 8))}, {"w": w})
    with pytest.raises(ValueError, match=f"block size {size}: MatMulNBits takes powers of two from 16 on"):
        convert(model, "int4", options=Quantisation(block_size=size))


def test_smaller_blocks_cost_less_error_and_more_bytes(exported: Exported, tmp_path: Path) -> None:
    single = exported("llama3-8b", "step")
    made = {
        size: derive(single, "int4", tmp_path / str(size), options=Quantisation(block_size=size)) for size in (16, 64)
    }
    assert made[16].errors["logits"] < made[64].errors["logits"] < 0.3
    assert made[16].ops["MatMulNBits"] == single.ops["MatMul"]
    stored = {
        size: sum(v.const_value.nbytes for v in ir.load(a.model_path).graph.initializers.values())
        for size, a in made.items()
    }  # type: ignore[union-attr]
    assert stored[64] < stored[16]
