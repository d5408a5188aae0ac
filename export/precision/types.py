"""The element type of every value: those that a graph pass left open follow from the operators' schemas."""

from __future__ import annotations

import onnx_ir as ir
from onnx import defs

_GIVEN = {"Cast": "to", "EyeLike": "dtype", "RandomNormal": "dtype", "RandomUniform": "dtype"}


def complete(model: ir.Model) -> None:
    """Set the types that are missing, where they can be known, graph by graph in the order of the nodes."""
    _graph(model.graph)


def _graph(graph: ir.Graph) -> None:
    for value in graph.initializers.values():
        if value.dtype is None and value.const_value is not None:
            value.dtype = value.const_value.dtype
    for node in graph:
        bodies = [a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]
        for body in bodies:
            _graph(body)
        for i, value in enumerate(node.outputs):
            if value.dtype is None:
                found = bodies[0].outputs[i].dtype if node.op_type == "If" else _of(node, i)
                if found is not None:
                    value.dtype = found


def _of(node: ir.Node, index: int) -> ir.DataType | None:
    """The type of one output: named by an attribute, that of a constant, or that of an input of the same variable."""
    if node.op_type in _GIVEN and _GIVEN[node.op_type] in node.attributes:
        return ir.DataType(node.attributes[_GIVEN[node.op_type]].as_int())
    if node.op_type in ("Constant", "ConstantOfShape"):
        return _constant(node)
    version = node.version or (node.graph.opset_imports.get(node.domain) if node.graph else None)
    try:
        schema = defs.get_schema(node.op_type, version or 23, node.domain)
    except defs.SchemaError:
        return None
    wanted = schema.outputs[min(index, len(schema.outputs) - 1)].type_str
    if wanted.startswith("tensor("):
        return _named(wanted)
    for i, value in enumerate(node.inputs):
        if schema.inputs[min(i, len(schema.inputs) - 1)].type_str == wanted and value is not None and value.dtype:
            return value.dtype
    allowed = next((entry.allowed_type_strs for entry in schema.type_constraints if entry.type_param_str == wanted), ())
    return _named(allowed[0]) if len(allowed) == 1 else None


def _constant(node: ir.Node) -> ir.DataType | None:
    """The type of the number that a constant holds; a bare ConstantOfShape holds a float zero."""
    tensor = node.attributes.get("value")
    if tensor is not None:
        return tensor.as_tensor().dtype
    floats = node.op_type == "ConstantOfShape" or any(name.startswith("value_float") for name in node.attributes)
    return ir.DataType.FLOAT if floats else ir.DataType.INT64


def _named(text: str) -> ir.DataType | None:
    """The type that a schema writes as tensor(int64)."""
    name = text.removeprefix("tensor(").removesuffix(")").upper()
    return ir.DataType.__members__.get(name)
