"""float16 and bfloat16: weights, activations and arithmetic in half precision, except where that would be wrong.

Caches and logits of a float16 graph are float16, as runtimes and serving code expect. A bfloat16 graph keeps float32
inputs and outputs, because NumPy has no bfloat16. Infinities stay what they are; a finite mask fill beyond the range,
such as -3.4e38, becomes a quarter of the range: that masks, and stays finite with scores and other fills added to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from .kept import FLOAT, NAMES, RANGE, Kept, constant, is_float, kept, least_fill, nodes, outside

QUARTER = 0.25
FILLED = ("Where", "ConstantOfShape", "Expand")  # operators that only place a constant
AS_IS = ("Cast", "Shape", "Size")  # operators that take any type


def to_half(model: ir.Model, half: ir.DataType, largest: Mapping[str, float]) -> list[str]:
    """Convert a float32 model in place; the notes say what was clamped and what stays in float32.

    `largest` has the magnitudes of values on example inputs, by name; values that are not in it pass for small.
    """
    fill = least_fill(model, half)
    notes = _clamp(model, half)
    stay = kept(model, half, {name: size for name, size in largest.items() if size < fill})
    _Conversion(model, half, stay, largest).run()
    return [*notes, *_listed(stay)]


def _listed(stay: Kept) -> list[str]:
    """One note a reason, with the nodes that it holds for."""
    groups: dict[str, list[str]] = {}
    for node, reason in stay.items():
        groups.setdefault(reason, []).append(f"{node.op_type} {node.name}")
    return [f"kept in float32: {', '.join(sorted(names))}: {reason}" for reason, names in groups.items()]


def _clamp(model: ir.Model, half: ir.DataType) -> list[str]:
    """Move finite mask fills into the range: constants that are only placed, never computed with."""
    limit = RANGE[half][1]
    notes = []
    for value in list(model.graph.initializers.values()):
        values = constant(value) if is_float(value) else None
        if values is None or not outside(values, half) or not _only_placed(value) or np.abs(values).max() <= limit:
            continue
        bound = QUARTER * limit
        value.const_value = ir.tensor(np.clip(values, -bound, bound).astype(np.float32), name=value.name)
        notes.append(f"mask fill {value.name}: {values.min():.3g} becomes {-bound:.5g}")
    return notes


def _only_placed(value: ir.Value) -> bool:
    return all(node.op_type in FILLED for node in value.consumers())


class _Conversion:
    """What each float value becomes, and the casts between the two worlds."""

    def __init__(self, model: ir.Model, half: ir.DataType, stay: Kept, largest: Mapping[str, float]) -> None:
        self._model = model
        self._half = half
        self._outside = half if half == ir.DataType.FLOAT16 else FLOAT  # the type of the graph's inputs and outputs
        self._stay = stay
        self._largest = largest
        self._floats: set[ir.Value] = set()
        self._casts: dict[tuple[ir.Value, ir.DataType, ir.Graph], ir.Value] = {}

    def run(self) -> None:
        """Set types first, then cast wherever a value is not of the type that its reader wants."""
        every = list(nodes(self._model))
        graphs = [self._model.graph, *_subgraphs(every)]
        wanted = {node: FLOAT if node in self._stay else self._half for node in every}
        for graph in graphs:
            self._inputs(graph)
        for node in every:
            for value in node.outputs:
                self._become(value, wanted[node])
            if node.op_type != "Cast" or node not in self._stay:
                self._attributes(node, wanted[node])
        for node in every:
            if node.op_type not in AS_IS:
                self._read(node, wanted[node])
        for graph in graphs:
            self._outputs(graph, self._outside if graph is self._model.graph else self._half)

    def _become(self, value: ir.Value, dtype: ir.DataType) -> None:
        if is_float(value):
            self._floats.add(value)
            value.dtype = dtype

    def _inputs(self, graph: ir.Graph) -> None:
        for value in graph.inputs:
            self._become(value, self._outside if graph is self._model.graph else self._half)
        for value in list(graph.initializers.values()):
            if is_float(value):
                self._initializer(value)

    def _initializer(self, value: ir.Value) -> None:
        """Store a weight in half; a small constant stays exact for the nodes that stay, be it some or all of them."""
        self._floats.add(value)
        readers = set(value.consumers())
        if constant(value) is not None:
            alone = bool(readers) and readers <= self._stay.keys()
            if alone or outside(constant(value), self._half):
                return
            if readers & self._stay.keys():
                self._twin(value, readers)
        assert value.const_value is not None
        value.dtype = self._half
        value.const_value = halved(value.const_value, self._half)

    def _twin(self, value: ir.Value, readers: set[ir.Node]) -> None:
        """A copy of a small constant in float32, for the nodes that stay."""
        assert value.const_value is not None
        twin = ir.Value(name=f"{value.name}_float32", type=value.type, shape=value.shape, const_value=value.const_value)
        value.graph.register_initializer(twin)  # type: ignore[union-attr]
        self._floats.add(twin)
        for node in readers & self._stay.keys():
            for i, given in enumerate(node.inputs):
                if given is value:
                    node.replace_input_with(i, twin)

    def _attributes(self, node: ir.Node, dtype: ir.DataType) -> None:
        """Types that a node names, and tensors that it holds."""
        for name, attribute in list(node.attributes.items()):
            if name in ("to", "dtype") and attribute.type == ir.AttributeType.INT and attribute.as_int() == FLOAT:
                node.attributes[name] = ir.AttrInt64(name, dtype)
            elif attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype == FLOAT:
                node.attributes[name] = ir.AttrTensor(name, _cast(attribute.as_tensor(), dtype))
        if node.op_type == "ConstantOfShape" and "value" not in node.attributes:
            node.attributes["value"] = ir.AttrTensor("value", _cast(ir.tensor(np.zeros(1, np.float32)), dtype))
        for name, read in (("value_float", ir.Attr.as_float), ("value_floats", ir.Attr.as_floats)):
            if node.op_type == "Constant" and name in node.attributes:
                numbers = np.array(read(node.attributes.pop(name)), np.float32)
                node.attributes["value"] = ir.AttrTensor("value", _cast(ir.tensor(numbers), dtype))

    def _read(self, node: ir.Node, wanted: ir.DataType) -> None:
        for i, value in enumerate(node.inputs):
            if value in self._floats and value is not None and value.dtype != wanted:
                node.replace_input_with(i, self._as(value, wanted, node))

    def _as(self, value: ir.Value, wanted: ir.DataType, reader: ir.Node) -> ir.Value:
        """The value in another type: one cast a graph, before its first reader."""
        graph = reader.graph
        assert isinstance(graph, ir.Graph)
        key = value, wanted, graph
        if key not in self._casts:
            bound = self._bound(value) if wanted == self._half else None
            if bound is not None:
                value = self._clipped(value, bound, reader)
            cast = _cast_node(value, wanted, f"{value.name}_{NAMES.get(wanted, 'float32')}")
            graph.insert_before(reader, cast)
            self._casts[key] = cast.outputs[0]
        return self._casts[key]

    def _bound(self, value: ir.Value) -> float | None:
        """Where to cut off a float32 value that would become infinite: it was as large, or is made from a mask fill."""
        limit = RANGE[self._half][1]
        producer = value.producer()
        given = producer.inputs if producer is not None else ()
        constants = (constant(other) for other in given if other is not None and is_float(other))
        if any(values is not None and (limit < np.abs(values)).any() for values in constants):
            return QUARTER * limit
        return limit if self._largest.get(value.name or "", 0.0) > limit else None

    def _clipped(self, value: ir.Value, bound: float, reader: ir.Node) -> ir.Value:
        """The value moved into the range: a row of padding alone is then uniform after a softmax, and not NaN."""
        ends = [self._number(f"half_bound_{end:.6g}", end) for end in (-bound, bound)]
        output = ir.Value(name=f"{value.name}_clipped", type=ir.TensorType(FLOAT), shape=value.shape)
        clip = ir.Node("", "Clip", [value, *ends], outputs=[output], name=f"clip_{value.name}")
        assert isinstance(reader.graph, ir.Graph)
        reader.graph.insert_before(reader, clip)
        return output

    def _number(self, name: str, number: float) -> ir.Value:
        graph = self._model.graph
        if name not in graph.initializers:
            tensor = ir.tensor(np.array(number, np.float32), name=name)
            made = ir.Value(name=name, type=ir.TensorType(FLOAT), shape=ir.Shape(()), const_value=tensor)
            graph.register_initializer(made)
        return graph.initializers[name]

    def _outputs(self, graph: ir.Graph, wanted: ir.DataType) -> None:
        """Outputs keep their names: the value before the cast takes another one."""
        for i, value in enumerate(graph.outputs):
            if value not in self._floats or value.dtype == wanted:
                continue
            name = value.name
            value.name = f"{name}_{NAMES.get(value.dtype or FLOAT, 'float32')}"
            cast = _cast_node(value, wanted, name or "")
            graph.append(cast)
            graph.outputs[i] = cast.outputs[0]


def halved(tensor: ir.TensorProtocol, half: ir.DataType) -> ir.LazyTensor:
    """A weight in half precision, made when it is written.

    Raises, when it is made:
        ValueError: a value lies outside the range; the message names the weight.
    """

    def make() -> ir.TensorProtocol:
        cast = _cast(tensor, half)
        if not np.isfinite(cast.numpy().astype(np.float32)).all() and np.isfinite(tensor.numpy()).all():
            most = float(np.abs(tensor.numpy()).max())
            raise ValueError(f"weight {tensor.name} has a value of {most:.3g}, and {NAMES[half]} cannot hold it")
        return cast

    return ir.LazyTensor(make, dtype=half, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name)


def _cast(tensor: ir.TensorProtocol, dtype: ir.DataType) -> ir.TensorProtocol:
    with np.errstate(over="ignore"):
        return ir.tensor(tensor.numpy().astype(dtype.numpy()), dtype=dtype, name=tensor.name)


def _cast_node(value: ir.Value, dtype: ir.DataType, name: str) -> ir.Node:
    output = ir.Value(name=name, type=ir.TensorType(dtype), shape=value.shape)
    return ir.Node("", "Cast", [value], {"to": ir.AttrInt64("to", dtype)}, outputs=[output], name=f"cast_{name}")


def _subgraphs(every: list[ir.Node]) -> list[ir.Graph]:
    found = []
    for node in every:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                found.append(attribute.as_graph())
            elif attribute.type == ir.AttributeType.GRAPHS:
                found.extend(attribute.as_graphs())
    return found
