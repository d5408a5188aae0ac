"""The operations of one node: those of matrices, a multiply-add is two. Every other operator counts as none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import onnx
from onnx import helper

from .graph_shapes import Tensor

Tensors = Sequence[Tensor | None]


def operations(node: onnx.NodeProto, inputs: Tensors, outputs: Tensors) -> int:
    """Operations of one run of a node with these shapes."""
    count = COUNTS.get(node.op_type)
    return count(node, inputs, outputs) if count else 0


def scores(node: onnx.NodeProto, inputs: Tensors, outputs: Tensors) -> int:
    """Elements of the matrix of scores of an attention node, batch and heads included; 0 for any other node."""
    if node.op_type not in ATTENTION:
        return 0
    query, keys = _shape(inputs, 0), _shape(inputs, 1)
    heads = _attribute(node, "q_num_heads") or _attribute(node, "num_heads")
    past = _shape(inputs, ATTENTION[node.op_type])
    count = heads if len(query) == 3 else query[1]
    tokens = query[-2]
    new = keys[-2] if keys else tokens
    return query[0] * count * tokens * ((past[2] if past else 0) + new)


def _product(node: onnx.NodeProto, inputs: Tensors, outputs: Tensors) -> int:
    first = _shape(inputs, 0)
    return 2 * prod(_shape(outputs, 0)) * (first[-2] if _attribute(node, "transA") else first[-1])


def _attention(node: onnx.NodeProto, inputs: Tensors, outputs: Tensors) -> int:
    """Scores and weighted values, all of them: what a causal mask hides is computed by most kernels."""
    heads = _attribute(node, "q_num_heads") or _attribute(node, "num_heads")
    query, output = _shape(inputs, 0), _shape(outputs, 0)
    if len(query) == 4:
        sizes = query[3] + output[3]
    else:  # the query of GroupQueryAttention may hold keys and values as well, which are as wide as what comes out
        sizes = ((output if node.op_type == "GroupQueryAttention" else query)[2] + output[2]) // heads
    return 2 * scores(node, inputs, outputs) * sizes


def _recurrence(node: onnx.NodeProto, inputs: Tensors, outputs: Tensors) -> int:
    tokens, batch = _shape(inputs, 0)[:2]
    return 2 * tokens * batch * (prod(_shape(inputs, 1)) + prod(_shape(inputs, 2)))


def _convolution(node: onnx.NodeProto, inputs: Tensors, outputs: Tensors) -> int:
    return 2 * prod(_shape(outputs, 0)) * prod(_shape(inputs, 1)[1:])


def _einsum(node: onnx.NodeProto, inputs: Tensors, outputs: Tensors) -> int:
    left = next(a for a in node.attribute if a.name == "equation").s.decode().replace(" ", "").partition("->")[0]
    sizes = {
        letter: size for term, tensor in zip(left.split(","), inputs, strict=True) if tensor
        for letter, size in zip(term, tensor.shape, strict=True)
    }  # fmt: skip
    return 2 * prod(sizes.values())


def _shape(tensors: Tensors, index: int) -> tuple[int, ...]:
    """The shape of one of them; () for an absent one."""
    tensor = tensors[index] if index < len(tensors) else None
    return tensor.shape if tensor else ()


def _attribute(node: onnx.NodeProto, name: str) -> int:
    return next((int(helper.get_attribute_value(a)) for a in node.attribute if a.name == name), 0)


ATTENTION = {"Attention": 4, "MultiHeadAttention": 6, "GroupQueryAttention": 3}  # the place of the past key
PRODUCTS = ("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "MatMulNBits", "FusedMatMul", "DynamicQuantizeMatMul")
COUNTS: Mapping[str, Callable[[onnx.NodeProto, Tensors, Tensors], int]] = {
    **dict.fromkeys((*PRODUCTS, "MatMulIntegerToFloat"), _product),
    **dict.fromkeys(ATTENTION, _attention),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrence),
    **dict.fromkeys(("Conv", "ConvInteger"), _convolution),
    "Einsum": _einsum,
}
