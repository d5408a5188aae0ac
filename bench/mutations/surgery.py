"""A graph on the operating table: find values and nodes, change them, put nodes on an edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ...models.signature import Array

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


class Graph:
    """A model that may be changed, with the look-ups that the kinds share. `rng` picks the place."""

    def __init__(self, model: onnx.ModelProto, seed: int) -> None:
        self.model = model
        self.rng = np.random.default_rng(seed)

    @property
    def nodes(self) -> Any:
        """The nodes, in order."""
        return self.model.graph.node

    @property
    def weights(self) -> dict[str, TensorProto]:
        """Initializers by name."""
        return {tensor.name: tensor for tensor in self.model.graph.initializer}

    def of(self, *op_types: str) -> list[NodeProto]:
        """The nodes of these operators."""
        return [node for node in self.nodes if node.op_type in op_types]

    def pick(self, sites: list[Any]) -> Any | None:
        """One of the places where a kind can be planted, or None without any."""
        return sites[int(self.rng.integers(len(sites)))] if sites else None

    def producer(self, name: str) -> NodeProto | None:
        """The node that makes a value."""
        return next((node for node in self.nodes if name in node.output), None)

    def rewire(self, old: str, new: str, *, besides: NodeProto | None = None) -> None:
        """Let everything that reads `old` read `new`, a graph output included, but for one node."""
        for node in self.nodes:
            if besides is None or node.output != besides.output:
                for i, name in enumerate(node.input):
                    if name == old:
                        node.input[i] = new

    def on_edge(self, value: str, op_type: str, *others: Array, **attributes: Any) -> None:
        """Put op(value, *others) between a value and all its readers; a graph output keeps its name."""
        produced = self.producer(value)
        constants = [self.constant(array) for array in others]
        other = f"planted/{len(self.nodes)}"
        if produced is None:  # an input: its readers read the other
            self.rewire(value, other)
            self.nodes.insert(0, helper.make_node(op_type, [value, *constants], [other], **attributes))
            return
        place = list(self.nodes).index(produced)
        produced.output[list(produced.output).index(value)] = other
        self.nodes.insert(place + 1, helper.make_node(op_type, [other, *constants], [value], **attributes))

    def constant(self, array: Array) -> str:
        """A new initializer."""
        name = f"planted_{len(self.model.graph.initializer)}"
        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def replace(self, node: NodeProto, op_type: str, inputs: list[str], **attributes: Any) -> None:
        """Make a node another one with the same outputs."""
        outputs = list(node.output)[:1]
        node.CopyFrom(helper.make_node(op_type, inputs, outputs, name=node.name, **attributes))

    def matrices(self) -> list[tuple[NodeProto, TensorProto]]:
        """MatMul nodes with a stored matrix on the right, which is large enough to be a weight."""
        weights = self.weights
        found = ((node, weights.get(node.input[1])) for node in self.of("MatMul"))
        return [(node, tensor) for node, tensor in found if tensor is not None and len(tensor.dims) == 2]

    def vectors(self, *op_types: str, place: int) -> list[TensorProto]:
        """Stored float vectors at one input of these operators."""
        weights = self.weights
        found = (weights.get(node.input[place]) for node in self.of(*op_types) if len(node.input) > place)
        return [t for t in found if t is not None and len(t.dims) == 1 and t.data_type in FLOATS and t.dims[0] > 1]

    def floats(self, name: str) -> bool:
        """Whether a value is float, as far as the graph says."""
        infos = (*self.model.graph.value_info, *self.model.graph.output, *self.model.graph.input)
        return any(info.name == name and info.type.tensor_type.elem_type in FLOATS for info in infos)


Kind = Callable[[Graph], bool]  # changes the graph, and says whether it found a place to do so
KINDS: dict[str, Kind] = {}


def kind(name: str) -> Callable[[Kind], Kind]:
    """Register a kind of fault under its name."""

    def register(function: Kind) -> Kind:
        KINDS[name] = function
        return function

    return register


def apply(name: str, model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto | None:
    """A copy of the model with one fault of this kind, or None where it has no place for it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy if KINDS[name](Graph(copy, seed)) else None


def touched(model: onnx.ModelProto, mutant: onnx.ModelProto) -> frozenset[str]:
    """The outputs of the nodes that a fault has changed or put in, or whose stored tensors it has changed."""
    before = {node.SerializeToString() for node in model.graph.node}
    weights = {tensor.name: tensor.SerializeToString() for tensor in model.graph.initializer}
    changed = {t.name for t in mutant.graph.initializer if weights.get(t.name) != t.SerializeToString()}
    nodes = (n for n in mutant.graph.node if n.SerializeToString() not in before or changed.intersection(n.input))
    return frozenset(name for node in nodes for name in node.output)


def change(tensor: TensorProto | None, edit: Callable[[Array], Array]) -> bool:
    """Replace the values of a stored tensor; False without one."""
    if tensor is None:
        return False
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.array(edit(array.copy()), array.dtype, order="C"), tensor.name))
    return True


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """The value of an attribute."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def set_attribute(node: NodeProto, name: str, value: Any) -> None:
    """Give an attribute a value."""
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def inputs(graph: Graph, *endings: str) -> Iterator[str]:
    """Graph inputs whose names end so."""
    yield from (info.name for info in graph.model.graph.input if info.name.endswith(endings))
