"""The linear layers of a graph: products with a stored matrix, and the lookups that share it (tied embeddings)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from ...models.signature import Array
from .kept import is_float, nodes

SCOPES = "pkg.torch.onnx.name_scopes"  # the modules around a node, itself last


@dataclass(eq=False)
class Matrix:
    """A stored matrix and all its readers, found to be products and lookups of rows alone.

    `by_rows` says that an output channel is a row of it, (N, K), rather than a column, (K, N).
    """

    value: ir.Value
    by_rows: bool
    products: list[ir.Node] = field(default_factory=list)
    lookups: list[ir.Node] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the initializer."""
        return self.value.name or ""

    @property
    def layer(self) -> str:
        """The module of the source that multiplies with it first, as torch's exporter noted it; else its own name."""
        scopes = self.products[0].metadata_props.get(SCOPES, "").strip("[]").replace("'", "").split(", ")
        return scopes[-2] if len(scopes) > 1 and not scopes[-2].startswith("_") else self.name

    @property
    def shape(self) -> tuple[int, int]:
        """Output channels N and input channels K."""
        assert self.value.const_value is not None
        rows, columns = self.value.const_value.shape.numpy()
        return (rows, columns) if self.by_rows else (columns, rows)

    def rows(self) -> Array:
        """The weights as (N, K), read when they are needed."""
        assert self.value.const_value is not None
        array = self.value.const_value.numpy()
        return array if self.by_rows else array.T


def matrices(model: ir.Model) -> tuple[list[Matrix], list[str]]:
    """The matrices that can be quantised in the order of their first product, and notes on those that cannot."""
    found: dict[ir.Value, Matrix | None] = {}
    for node in nodes(model):
        value = _weight(node)
        if value is not None and value not in found:
            found[value] = _matrix(value)
    notes = [
        f"{value.name} stays in float32: not all its readers are products and lookups"
        for value, matrix in found.items()
        if matrix is None
    ]
    return [matrix for matrix in found.values() if matrix is not None], notes


def _weight(node: ir.Node) -> ir.Value | None:
    """The stored matrix of a product, which may be transposed on the way."""
    if node.op_type not in ("MatMul", "Gemm") or node.domain or len(node.inputs) < 2:
        return None
    value = node.inputs[1]
    producer = value.producer() if value is not None else None
    if producer is not None and producer.op_type == "Transpose":
        value = producer.inputs[0]
    stored = value is not None and value.is_initializer() and value.const_value is not None and is_float(value)
    return value if stored and value is not None and len(value.const_value.shape) == 2 else None  # type: ignore[union-attr]


def _matrix(value: ir.Value) -> Matrix | None:
    """What reads a matrix; None if something else does, or in both directions."""
    directions: dict[bool, list[ir.Node]] = {True: [], False: []}
    lookups = []
    for node, place in value.uses():
        if node.op_type == "Gather" and place == 0 and _integer(node, "axis", 0) == 0:
            lookups.append(node)
        elif node.op_type == "Transpose" and all(_plain(user, at) for user, at in node.outputs[0].uses()):
            directions[True] += node.outputs[0].consumers()
        elif _plain(node, place):
            directions[node.op_type == "Gemm" and _integer(node, "transB", 0) == 1].append(node)
        else:
            return None
    if all(directions.values()) or (lookups and directions[False]):
        return None
    by_rows = bool(directions[True])
    return Matrix(value, by_rows, directions[by_rows], lookups)


def _plain(node: ir.Node, place: int) -> bool:
    """Whether a matrix at this place is the right factor of x·W or x·Wᵀ + b, without other factors."""
    if place != 1 or node.op_type not in ("MatMul", "Gemm"):
        return False
    factors = (node.attributes[name].as_float() for name in ("alpha", "beta") if name in node.attributes)
    return _integer(node, "transA", 0) == 0 and all(factor == 1.0 for factor in factors)


def _integer(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return attribute.as_int() if attribute is not None else default


class Rewriter:
    """Puts nodes and initializers in the place of a node."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model

    def store(self, name: str, dtype: ir.DataType, shape: Sequence[int], make: Callable[[], Array]) -> ir.Value:
        """A new initializer, made when it is written."""
        tensor = ir.LazyTensor(
            lambda: ir.tensor(make(), dtype=dtype, name=name), dtype=dtype, shape=ir.Shape(shape), name=name
        )
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape), const_value=tensor)
        self._model.graph.register_initializer(value)
        return value

    def small(self, name: str, values: Array) -> ir.Value:
        """A new small constant, or the one of that name that is there."""
        known = self._model.graph.initializers.get(name)
        return known or self.store(name, ir.DataType.from_numpy(values.dtype), values.shape, lambda: values)

    def replace(self, old: ir.Node, build: Callable[[ir.tape.Tape], ir.Value]) -> None:
        """Build new nodes where an old one stands; the last value takes the place and name of its output."""
        tape = ir.tape.Tape()
        value = build(tape)
        graph = old.graph
        assert isinstance(graph, ir.Graph)
        for i, node in enumerate(tape.nodes):
            node.name = f"{old.name}_{i}_{node.op_type}"
            for output in node.outputs:
                output.name = output.name or f"{node.name}_{output.index()}"
        ir.convenience.replace_nodes_and_values(graph, old, [old], list(tape.nodes), list(old.outputs), [value])

    def finish(self, *, contrib: bool = False) -> None:
        """Drop what nothing reads any more; `contrib` declares com.microsoft."""
        RemoveUnusedNodesPass()(self._model)
        if contrib:
            self._model.graph.opset_imports["com.microsoft"] = 1


def with_bias(tape: ir.tape.Tape, product: ir.Value, node: ir.Node) -> ir.Value:
    """The product of a Gemm plus its third input; that of a MatMul as it is."""
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return product if bias is None else tape.op("Add", [product, bias])
