"""MatMulNBits in float64 against ONNX Runtime, and against integers unpacked one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from isorun.runtimes.reference import Float64Graph

RNG = np.random.default_rng(0)
N, K, BLOCK = 5, 70, 32  # the last block is not full
BLOCKS = -(-K // BLOCK)


def graph(bits: int, *, level: int = 0, zeros: bool = False) -> tuple[onnx.ModelProto, NDArray[np.float64]]:
    """A product with random integers, and the matrix that they stand for."""
    integers = RNG.integers(0, 2**bits, (N, BLOCKS, BLOCK))
    scale = RNG.uniform(0.5, 1.5, (N, BLOCKS)).astype(np.float32)
    zero = RNG.integers(0, 2**bits, (N, BLOCKS)) if zeros else np.full((N, BLOCKS), 2 ** (bits - 1))
    stored = {"w": _pack(integers, bits), "s": scale, **({"z": _pack(zero, bits)} if zeros else {})}
    attributes = {"K": K, "N": N, "bits": bits, "block_size": BLOCK, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", *stored], ["y"], domain="com.microsoft", **attributes)
    wide, narrow = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", m]) for n, m in (("x", K), ("y", N)))
    initializers = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(
        helper.make_graph([node], "g", [wide], [narrow], initializers), opset_imports=opsets, ir_version=10
    )
    rows = (integers - zero[..., None]) * scale[..., None].astype(float)
    return proto, rows.reshape(N, -1)[:, :K]


def _pack(integers: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Two 4-bit numbers in a byte, the first in its lower half; an odd number of them is filled up."""
    if bits == 8:
        return integers.astype(np.uint8)
    even = np.concatenate([integers, np.zeros_like(integers[..., : integers.shape[-1] % 2])], -1)
    return (even[..., ::2] + 16 * even[..., 1::2]).astype(np.uint8)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_the_product_is_that_of_the_matrix(bits: int, zeros: bool) -> None:
    proto, rows = graph(bits, zeros=zeros)
    x = RNG.standard_normal((3, K))
    y = Float64Graph(proto).run({"x": x})["y"]
    assert np.abs(y - x @ rows.T).max() < 1e-11


@pytest.mark.parametrize("bits", [4, 8])
def test_onnx_runtime_agrees_up_to_float32(bits: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    proto, _ = graph(bits)
    x = RNG.standard_normal((3, K)).astype(np.float32)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    y = Float64Graph(proto).run({"x": x})["y"]
    assert np.abs(session.run(None, {"x": x})[0] - y).max() < 1e-5 * np.abs(y).max()


def test_at_level_4_activations_are_rounded_by_block_unless_it_is_to_be_ideal() -> None:
    proto, rows = graph(4, level=4)
    x = RNG.standard_normal((3, K))
    exact = x @ rows.T
    assert np.abs(Float64Graph(proto, ideal=True).run({"x": x})["y"] - exact).max() < 1e-11
    rounded = x.copy()
    for start in range(0, K, BLOCK):
        part = x[:, start : start + BLOCK]
        step = np.abs(part).max(1, keepdims=True) / 127
        rounded[:, start : start + BLOCK] = np.round(part / step) * step
    y = Float64Graph(proto).run({"x": x})["y"]
    assert np.abs(y - rounded @ rows.T).max() < 1e-11
    assert np.abs(y - exact).max() > 1e-4
