"""ONNX Runtime's own attention operators in float64, against ONNX Runtime in float32 and against their parts."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from isorun.runtimes.reference_fused import group_query_attention, multi_head_attention

H, G, D = 6, 2, 8
GQA_INPUTS = 17


def run_ort(operator: str, inputs: list[np.ndarray | None], outputs: int, **attributes: object) -> list[np.ndarray]:
    """One node on ONNX Runtime; float inputs become float32."""
    names = [f"in{i}" if array is not None else "" for i, array in enumerate(inputs)]
    feeds = {
        name: array.astype(np.float32) if array.dtype == np.float64 else array
        for name, array in zip(names, inputs, strict=True)
        if array is not None
    }
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    results = [helper.make_tensor_value_info(f"out{i}", TensorProto.FLOAT, None) for i in range(outputs)]
    node = helper.make_node(operator, names, [one.name for one in results], domain="com.microsoft", **attributes)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "one", declared, results), opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


def gqa(batch: int, tokens: int, past: int | None, *, bias: bool) -> list[np.ndarray | None]:
    """The inputs of GroupQueryAttention; a bias hides half of all keys, and never the query's own."""
    rng = np.random.default_rng(0)
    total = tokens + (past or 0)
    inputs: list[np.ndarray | None] = [None] * GQA_INPUTS
    inputs[0] = rng.standard_normal((batch, tokens, H * D))
    inputs[1], inputs[2] = rng.standard_normal((2, batch, tokens, G * D))
    inputs[5], inputs[6] = np.full(batch, total - 1, np.int32), np.array([total], np.int32)
    if past is not None:
        inputs[3], inputs[4] = rng.standard_normal((2, batch, G, past, D))
        inputs[16] = np.full(batch, tokens, np.int32)
    if bias:
        hidden = np.where(rng.random((batch, 1, tokens, total)) < 0.5, 0.0, -np.inf)
        own = np.arange(tokens)
        hidden[:, :, own, own + (past or 0)] = 0
        inputs[10] = hidden
    return inputs


@pytest.mark.parametrize(
    ("batch", "tokens", "past", "bias"), list(itertools.product((1, 3), (1, 7), (None, 0, 5), (False, True)))
)
def test_group_query_attention_is_that_of_onnx_runtime(batch: int, tokens: int, past: int | None, bias: bool) -> None:
    inputs = gqa(batch, tokens, past, bias=bias)
    settings = {"num_heads": H, "kv_num_heads": G, "scale": 0.3}
    found = group_query_attention(*inputs, **settings)
    for ours, theirs in zip(found, run_ort("GroupQueryAttention", inputs, 3, **settings), strict=True):
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)


def test_group_query_attention_caps_scores_as_onnx_runtime_does() -> None:
    inputs = gqa(2, 5, None, bias=False)
    settings = {"num_heads": H, "kv_num_heads": G, "softcap": 0.5}
    (y, *_), (theirs, *_) = (
        group_query_attention(*inputs, **settings),
        run_ort("GroupQueryAttention", inputs, 3, **settings),
    )
    np.testing.assert_allclose(y, theirs, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("place", "value"), [(5, np.array([3, 4], np.int32)), (6, np.array([9], np.int32)), (7, np.ones((9, 4)))]
)
def test_group_query_attention_refuses_what_no_pass_writes(place: int, value: np.ndarray) -> None:
    inputs = gqa(2, 5, None, bias=False)
    inputs[place] = value
    with pytest.raises(NotImplementedError, match="not evaluated in float64"):
        group_query_attention(*inputs, num_heads=H, kv_num_heads=G)


@pytest.mark.parametrize("setting", [{"do_rotary": 1}, {"local_window_size": 4}, {"causal": 0}])
def test_group_query_attention_refuses_other_settings(setting: dict[str, int]) -> None:
    with pytest.raises(NotImplementedError, match=next(iter(setting))):
        group_query_attention(*gqa(1, 5, None, bias=False), num_heads=H, kv_num_heads=G, **setting)


@pytest.mark.parametrize(("tokens", "keys", "width"), [(1, 5, D), (7, 7, D), (4, 9, 2 * D)])
def test_multi_head_attention_is_that_of_onnx_runtime(tokens: int, keys: int, width: int) -> None:
    rng = np.random.default_rng(0)
    inputs: list[np.ndarray | None] = [rng.standard_normal((2, n, H * D)) for n in (tokens, keys)]
    inputs.append(rng.standard_normal((2, keys, H * width)))
    y = multi_head_attention(*inputs, num_heads=H, scale=0.4)
    theirs = run_ort("MultiHeadAttention", inputs, 1, num_heads=H, scale=0.4)[0]
    np.testing.assert_allclose(y, theirs, rtol=0, atol=2e-6)


def test_multi_head_attention_refuses_a_padding_mask() -> None:
    q = np.zeros((1, 2, H * D))
    with pytest.raises(NotImplementedError, match="not evaluated in float64"):
        multi_head_attention(q, q, q, None, np.ones((1, 2), np.int32), num_heads=H)
