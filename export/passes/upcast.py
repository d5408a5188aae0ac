"""Upcast: the same graph with DOUBLE in place of every FLOAT, FLOAT16 and BFLOAT16.

Evaluated in float64, rounding falls to 1e-13 of the output's scale, so that any other difference between a graph and
its source model stands out. A value that the graph stores in a narrow type keeps the rounding of that type: a constant
such as the attention scale 1/sqrt(head_dim) at opset 18 shows as a distance of 1e-9 to 1e-8. That is the class "rounded
constant"; it is not another function. (Float attributes are float32 in every ONNX file; how to read them is up to the
evaluator.)

Left alone, because their values mean something of their own: integers, booleans, strings, 8-bit and 4-bit floats. A
quantised graph keeps its integers; the scales beside them are floats like any other.
"""

from __future__ import annotations

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    helper,
    inliner,
    numpy_helper,
)

_NARROW = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})

# Where an integer attribute names a tensor type. BitCast is not here: it speaks of bits, not of values.
_TYPE_ATTRIBUTES = {
    "Attention": "softmax_precision",
    "Cast": "to",
    "DequantizeLinear": "output_dtype",
    "EyeLike": "dtype",
    "GroupNormalization": "stash_type",
    "LayerNormalization": "stash_type",
    "RMSNormalization": "stash_type",
    "SequenceEmpty": "dtype",
}
_FLOAT_WHEN_ABSENT = frozenset({"LayerNormalization", "RMSNormalization", "SequenceEmpty"})


def upcast(model: ModelProto) -> ModelProto:
    """A copy of a model in which everything float is DOUBLE; external data must be loaded.

    Local functions are inlined first: inside a function a type can be a parameter (`to=@dtype`, `value_float=@alpha`)
    that only the call knows.

    Raises:
        ValueError: a local function cannot be inlined, because it imports another opset than the model.
    """
    double = ModelProto()
    double.CopyFrom(inliner.inline_local_functions(model) if model.functions else model)
    if double.functions:
        names = ", ".join(function.name for function in double.functions)
        raise ValueError(f"cannot inline the local functions {names}: they import another opset than the model")
    _graph(double.graph)
    return double


def _graph(graph: GraphProto) -> None:
    for tensor in graph.initializer:
        _tensor(tensor)
    for sparse in graph.sparse_initializer:
        _tensor(sparse.values)
    for info in (*graph.input, *graph.output, *graph.value_info):
        _type(info.type)
    for node in graph.node:
        _node(node)


def _tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _NARROW:
        tensor.CopyFrom(_double(numpy_helper.to_array(tensor), tensor.name))


def _double(values: object, name: str = "") -> TensorProto:
    return numpy_helper.from_array(np.asarray(values).astype(np.float64), name)


def _type(declared: TypeProto) -> None:
    kind = declared.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(declared, kind)
        if tensor.elem_type in _NARROW:
            tensor.elem_type = TensorProto.DOUBLE
    elif kind in ("sequence_type", "optional_type"):
        _type(getattr(declared, kind).elem_type)


def _node(node: NodeProto) -> None:
    for attribute in node.attribute:
        _attribute(attribute)
    if node.domain in ("", "ai.onnx"):
        _constant(node)
        _named_type(node)


def _attribute(attribute: AttributeProto) -> None:
    """The tensors, types and subgraphs that an attribute holds."""
    for tensor in (attribute.t, *attribute.tensors):
        _tensor(tensor)
    for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
        _tensor(sparse.values)
    for declared in (attribute.tp, *attribute.type_protos):
        _type(declared)
    for graph in (attribute.g, *attribute.graphs):
        _graph(graph)


def _constant(node: NodeProto) -> None:
    """Constants whose type is implied: `value_float`, `value_floats`, and the float zero of a bare ConstantOfShape."""
    if node.op_type == "Constant":
        for attribute in node.attribute:
            if attribute.name in ("value_float", "value_floats"):
                value = helper.get_attribute_value(attribute)
                attribute.CopyFrom(helper.make_attribute("value", _double(value)))
    elif node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(helper.make_attribute("value", _double([0.0])))


def _named_type(node: NodeProto) -> None:
    """An attribute that names a type: the target of a Cast, the precision of a normalization or a softmax."""
    name = _TYPE_ATTRIBUTES.get(node.op_type)
    if name is None:
        return
    given = [attribute for attribute in node.attribute if attribute.name == name]
    for attribute in given:
        if attribute.i in _NARROW:
            attribute.i = TensorProto.DOUBLE
    if not given and node.op_type in _FLOAT_WHEN_ABSENT:
        node.attribute.append(helper.make_attribute(name, TensorProto.DOUBLE))
