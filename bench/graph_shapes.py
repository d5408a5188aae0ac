"""The shape of every value of a graph at given input sizes, without running it: the ONNX shape functions, node by node.

Integers that come from shapes are computed with onnx's own reference operators, because reshapes and slices depend on
them. The body of a Scan or Loop is gone through once, for its shapes do not change from trip to trip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ..models.signature import Array
from .contrib_shapes import contrib_shapes

SMALL = 4096  # elements up to which a value is computed: shapes have a few, position tables and masks are none of them
BITS = {"bool": 8, "bfloat16": 16, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2}  # where NumPy has no such type


class UnknownShape(Exception):
    """A shape that cannot be told without running the graph; the message names the node."""


@dataclass(frozen=True)
class Tensor:
    """A value's shape and type, and the value itself where it is a small one that is known."""

    shape: tuple[int, ...]
    dtype: str
    value: Array | None = field(default=None, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor; types of less than a byte are packed."""
        bits = BITS.get(self.dtype) or (8 if self.dtype.startswith("float8") else 8 * np.dtype(self.dtype).itemsize)
        return (prod(self.shape) * bits + 7) // 8


@dataclass(frozen=True)
class Visit:
    """A node with the tensors that go in and out; `folded` when it only computes shapes. A body runs `times` times."""

    node: onnx.NodeProto
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    folded: bool = False
    body: tuple[Visit, ...] = ()
    times: int = 1


class Shapes:
    """The shape functions of one model, applied to its nodes in order."""

    def __init__(self, model: onnx.ModelProto, folder: Path) -> None:
        self._model = model
        self._opsets = {entry.domain: entry.version for entry in model.opset_import}
        self.weights = {tensor.name: _stored(tensor, folder) for tensor in model.graph.initializer}

    def visit(self, feeds: Mapping[str, Tensor]) -> tuple[tuple[Visit, ...], dict[str, Tensor]]:
        """Every node in order, and the tensors of the graph's outputs.

        Raises:
            UnknownShape: a shape that depends on data.
        """
        scope = {**self.weights, **feeds}
        visits = self._graph(self._model.graph, scope)
        return visits, {value.name: scope[value.name] for value in self._model.graph.output}

    def _graph(self, graph: onnx.GraphProto, scope: dict[str, Tensor]) -> tuple[Visit, ...]:
        """Visit the nodes of a graph, and leave what they give out in `scope`."""
        visits = []
        for node in graph.node:
            inputs = tuple(scope[name] if name else None for name in node.input)
            run = getattr(self, f"_{node.op_type.lower()}", self._plain)
            visit: Visit = run(node, inputs, scope)
            scope.update({name: out for name, out in zip(node.output, visit.outputs, strict=False) if name and out})
            visits.append(visit)
        return tuple(visits)

    def _plain(self, node: onnx.NodeProto, inputs: tuple[Tensor | None, ...], scope: dict[str, Tensor]) -> Visit:
        given = [tensor for tensor in inputs if tensor]
        if node.op_type == "Shape" or all(tensor.value is not None for tensor in given):
            outputs = self._computed(node, inputs)
            if outputs is not None:
                return Visit(node, inputs, outputs, folded=True)
        if node.domain == "com.microsoft":
            shapes = contrib_shapes(node, [tensor.shape if tensor else None for tensor in inputs])
            if shapes is None:
                raise UnknownShape(f"{node.op_type} ({node.name}): no shape function is known for it")
            kept = given[0].dtype
            return Visit(node, inputs, tuple(Tensor(shape, kept) if shape is not None else None for shape in shapes))
        return Visit(node, inputs, self._inferred(node, inputs))

    def _computed(self, node: onnx.NodeProto, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...] | None:
        """The values of a node whose inputs are known, or None when they are too large to be shapes."""
        if node.op_type == "Shape" and inputs[0]:
            attributes = _attributes(node)
            dims = inputs[0].shape[attributes.get("start", 0) : attributes.get("end", None)]
            return (_known(np.array(dims, np.int64)),)
        if node.op_type in ("ConstantOfShape", "Expand", "Range", "Tile"):
            shape = self._inferred(node, inputs)[0]
            if shape is None or prod(shape.shape) > SMALL:
                return None
        evaluator = ReferenceEvaluator(node, opsets=self._opsets)
        feeds = {name: tensor.value for name, tensor in zip(node.input, inputs, strict=True) if tensor}
        results = evaluator.run(None, feeds)
        arrays = [np.asarray(result) for result in results]
        return tuple(map(_known, arrays)) if all(array.size <= SMALL for array in arrays) else None

    def _inferred(self, node: onnx.NodeProto, inputs: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """The outputs by the operator's own shape function."""
        schema = onnx.defs.get_schema(node.op_type, self._opsets[node.domain], node.domain)
        named = {name: tensor for name, tensor in zip(node.input, inputs, strict=True) if tensor}
        types = {name: _type(tensor) for name, tensor in named.items()}
        data = {name: numpy_helper.from_array(t.value, name) for name, t in named.items() if t.value is not None}
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._opsets.items()]
        found = onnx.shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=opsets, ir_version=self._model.ir_version
        )
        return tuple(_tensor(found[name], node) if name else None for name in node.output)

    def _if(self, node: onnx.NodeProto, inputs: tuple[Tensor | None, ...], scope: dict[str, Tensor]) -> Visit:
        condition = inputs[0].value if inputs[0] else None
        if condition is None:
            raise UnknownShape(f"If ({node.name}): which branch runs depends on data")
        branch = _attributes(node)["then_branch" if condition.item() else "else_branch"]
        body, outputs = self._body(branch, scope, [])
        return Visit(node, inputs, outputs, body=body)

    def _scan(self, node: onnx.NodeProto, inputs: tuple[Tensor | None, ...], scope: dict[str, Tensor]) -> Visit:
        attributes = _attributes(node)
        count = attributes["num_scan_inputs"]
        given = [tensor for tensor in inputs if tensor]
        states, scanned = given[: len(given) - count], given[len(given) - count :]
        axes = attributes.get("scan_input_axes") or [0] * count
        times = scanned[0].shape[axes[0]]
        slices = [Tensor(_without(t.shape, axis), t.dtype) for t, axis in zip(scanned, axes, strict=True)]
        body, results = self._body(attributes["body"], scope, [Tensor(t.shape, t.dtype) for t in states] + slices)
        kept, stacked = results[: len(states)], results[len(states) :]
        _refuse_growth(node, states, kept)
        outputs = [Tensor((times, *t.shape), t.dtype) for t in stacked]
        return Visit(node, inputs, (*kept, *outputs), body=body, times=times)

    def _loop(self, node: onnx.NodeProto, inputs: tuple[Tensor | None, ...], scope: dict[str, Tensor]) -> Visit:
        trips = inputs[0].value if inputs and inputs[0] else None
        if trips is None:
            raise UnknownShape(f"Loop ({node.name}): how often it runs depends on data")
        times, carried = int(trips.item()), [Tensor(t.shape, t.dtype) for t in inputs[2:] if t]
        counters = [Tensor((), "int64"), Tensor((), "bool")]
        body, results = self._body(_attributes(node)["body"], scope, counters + carried)
        kept, stacked = results[1 : 1 + len(carried)], results[1 + len(carried) :]
        _refuse_growth(node, carried, kept)
        outputs = [Tensor((times, *t.shape), t.dtype) for t in stacked]
        return Visit(node, inputs, (*kept, *outputs), body=body, times=times)

    def _body(
        self, graph: onnx.GraphProto, scope: Mapping[str, Tensor], inputs: Sequence[Tensor]
    ) -> tuple[tuple[Visit, ...], tuple[Tensor, ...]]:
        stored = {tensor.name: _stored(tensor, Path()) for tensor in graph.initializer}
        inner = {**scope, **stored, **{value.name: t for value, t in zip(graph.input, inputs, strict=True)}}
        visits = self._graph(graph, inner)
        return visits, tuple(inner[value.name] for value in graph.output)


def _stored(tensor: onnx.TensorProto, folder: Path) -> Tensor:
    """A weight; its value where it is small, which shapes may depend on."""
    dtype = helper.tensor_dtype_to_string(tensor.data_type).removeprefix("TensorProto.")
    shape = tuple(tensor.dims)
    value = numpy_helper.to_array(tensor, str(folder)) if prod(shape) <= SMALL else None
    return Tensor(shape, _names(tensor.data_type, dtype), value)


def _known(array: Array) -> Tensor:
    return Tensor(array.shape, array.dtype.name, array)


def _names(kind: int, fallback: str) -> str:
    """The NumPy name of an ONNX type, or its own name in small letters."""
    special: dict[int, str] = {
        onnx.TensorProto.BFLOAT16: "bfloat16",
        onnx.TensorProto.INT4: "int4",
        onnx.TensorProto.UINT4: "uint4",
    }
    return special.get(kind) or (
        fallback.lower() if "FLOAT8" in fallback else helper.tensor_dtype_to_np_dtype(kind).name
    )


def _type(tensor: Tensor) -> onnx.TypeProto:
    kinds = {"bfloat16": onnx.TensorProto.BFLOAT16, "int4": onnx.TensorProto.INT4, "uint4": onnx.TensorProto.UINT4}
    kind = kinds.get(tensor.dtype) or helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
    return helper.make_tensor_type_proto(kind, tensor.shape)


def _tensor(kind: onnx.TypeProto, node: onnx.NodeProto) -> Tensor:
    inferred = kind.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in inferred.shape.dim]
    if not inferred.HasField("shape") or None in dims:
        raise UnknownShape(f"{node.op_type} ({node.name}): its output's shape depends on data")
    name = helper.tensor_dtype_to_string(inferred.elem_type).removeprefix("TensorProto.")
    return Tensor(tuple(dim for dim in dims if dim is not None), _names(inferred.elem_type, name))


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    at = axis % len(shape)
    return shape[:at] + shape[at + 1 :]


def _refuse_growth(node: onnx.NodeProto, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
    if [tensor.shape for tensor in before] != [tensor.shape for tensor in after]:
        raise UnknownShape(f"{node.op_type} ({node.name}): a value that it carries changes its shape from trip to trip")
