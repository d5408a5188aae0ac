"""What the passes share: reading a graph backwards from a value, and writing nodes in front of another one.

Layouts: B batch, n tokens, H heads, D head_dim. A value is *spread* when it is (B, H, n, D), made by Reshape and
Transpose of a *flat* one (B, n, H·D), as the exporter writes `unflatten` and `transpose`; kernels read flat ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

Array = NDArray[Any]
SWAP = [0, 2, 1, 3]  # heads before tokens, and back
MICROSOFT = "com.microsoft"


def branch(name: str, build: Callable[[Writer], list[ir.Value]]) -> ir.Graph:
    """A branch of an If: what `build` writes, with what it returns as outputs. It may read outer values."""
    graph = ir.Graph([], [], nodes=[], name=name)
    graph.outputs.extend(build(Writer(graph, None, name)))
    return graph


def made_by(value: ir.Value | None, *operators: str) -> ir.Node | None:
    """The node that makes a value, when it is one of these standard operators."""
    node = value.producer() if value is not None else None
    return node if node is not None and node.domain in ("", "ai.onnx") and node.op_type in operators else None


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """An attribute's value, or the default where it is absent."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def constant(value: ir.Value | None) -> Array | None:
    """The value of a constant or an initializer; None for anything else."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def sizes(value: ir.Value | None) -> tuple[int | str | None, ...]:
    """The dimensions of a value, free ones by name, unknown ones None; empty where the rank is unknown."""
    if value is None or value.shape is None:
        return ()
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)


def heads_of(spread: ir.Value) -> int:
    """H of a value (B, H, n, D) whose shape is known."""
    heads = sizes(spread)[1]
    assert isinstance(heads, int)
    return heads


class Writer:
    """Writes nodes into a graph, each in front of `before`, or at the end without one."""

    def __init__(self, graph: ir.Graph, before: ir.Node | None, prefix: str) -> None:
        """`prefix` begins the names of new values; it must be used once in a model, subgraphs included."""
        self._graph = graph
        self._before = before
        self._prefix = prefix
        self._count = 0

    def __call__(self, operator: str, *inputs: ir.Value | None, domain: str = "", **attributes: Any) -> ir.Value:
        """A node with one output, which is returned; its type and shape are left to inference."""
        return self.node(operator, inputs, attributes, 1, domain).outputs[0]

    def node(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: dict[str, Any],
        outputs: int,
        domain: str = "",
    ) -> ir.Node:
        """A node with several outputs."""
        node = ir.node(operator, inputs, attributes, num_outputs=outputs, domain=domain)
        for value in node.outputs:
            value.name = f"{self._prefix}.{self._count}"
            self._count += 1
            dtype = _dtype(node, value.index() or 0)
            if dtype is not None:
                value.dtype = dtype
        if self._before is None:
            self._graph.append(node)
        else:
            self._graph.insert_before(self._before, node)
        return node

    def constant(self, array: Array | np.generic) -> ir.Value:
        """A constant."""
        return self("Constant", value=ir.tensor(np.asarray(array)))

    def spread(self, flat: ir.Value, heads: int) -> ir.Value:
        """(B, n, H·D) → (B, H, n, D)."""
        shape = self.constant(np.array([0, 0, heads, -1], np.int64))
        return self("Transpose", self("Reshape", flat, shape), perm=SWAP)

    def tokens_first(self, spread: ir.Value) -> ir.Value:
        """(B, H, n, D) → (B, n, H, D): what it was made from, where it was made from one."""
        transpose = swapped(spread)
        return self("Transpose", spread, perm=SWAP) if transpose is None else transpose

    def flat(self, spread: ir.Value) -> ir.Value:
        """(B, H, n, D) → (B, n, H·D): what it was made from, where it was made from a flat one."""
        return unspread(spread) or self(
            "Reshape", self("Transpose", spread, perm=SWAP), self.constant(np.array([0, 0, -1], np.int64))
        )


_BOOLS = ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")


def _dtype(node: ir.Node, output: int) -> ir.DataType | None:
    """The element type of an output: inference knows nothing of fused operators, and what reads the graph wants it."""
    if node.op_type in _BOOLS:
        return ir.DataType.BOOL
    if node.op_type == "Shape":
        return ir.DataType.INT64
    if node.op_type == "Cast":
        return ir.DataType(attribute(node, "to"))
    if node.op_type == "Constant":
        return ir.DataType(attribute(node, "value").dtype)
    if node.op_type == "If":
        return node.attributes["else_branch"].as_graph().outputs[output].dtype
    source = node.inputs[1 if node.op_type == "Where" else 0]
    return None if source is None else source.dtype


def plain(attention: ir.Node) -> bool:
    """Nothing but scores, mask and softmax: no soft-cap, no cache of its own, and scores that no one reads."""
    return (
        not attribute(attention, "softcap", 0.0)
        and len(attention.inputs) <= 4
        and not any(one.uses() for one in attention.outputs[1:])
    )


def swapped(value: ir.Value | None) -> ir.Value | None:
    """The value whose second and third axes were exchanged to make this one, or None."""
    transpose = made_by(value, "Transpose")
    return None if transpose is None or list(attribute(transpose, "perm", ())) != SWAP else transpose.inputs[0]


def unspread(value: ir.Value) -> ir.Value | None:
    """The flat value (B, n, H·D) that a value (B, H, n, D) was made from by Reshape and Transpose, or None."""
    reshape = made_by(swapped(value), "Reshape")
    return None if reshape is None or not _splits_heads(reshape) else reshape.inputs[0]


def _splits_heads(reshape: ir.Node) -> bool:
    """(B, n, H·D) → (B, n, H, D)? By a shape that says so, or by the sizes on both sides."""
    wanted = constant(reshape.inputs[1])
    if (
        wanted is not None
        and wanted.size == 4
        and list(wanted[:2]) == [0, 0]
        and not attribute(reshape, "allowzero", 0)
    ):
        return True
    flat, split = sizes(reshape.inputs[0]), sizes(reshape.outputs[0])
    if len(flat) != 3 or len(split) != 4 or None in flat or flat[:2] != split[:2]:
        return False
    width, heads, head = flat[2], split[2], split[3]
    return isinstance(width, int) and isinstance(heads, int) and isinstance(head, int) and heads * head == width


def gathers_heads(reshape: ir.Node) -> ir.Value | None:
    """The flat value that Reshape(Transpose(Transpose(Reshape(flat)))) gives back unchanged, or None."""
    spread = swapped(reshape.inputs[0])
    flat = None if spread is None else unspread(spread)
    before, after = sizes(reshape.inputs[0]), sizes(reshape.outputs[0])
    if flat is None or len(before) != 4 or len(after) != 3 or None in before or after[:2] != before[:2]:
        return None
    return flat if isinstance(after[2], int) else None


def replace(old: ir.Value, new: ir.Value) -> None:
    """Let every reader of `old`, and the graph's outputs, have `new`, under the old name where it is an output."""
    if new.type is None:
        new.type = old.type
    if new.shape is None:
        new.shape = old.shape
    if old.is_graph_output():
        name = old.name
        old.name = f"{name}.replaced"
        new.name = name
    old.replace_all_uses_with(new, replace_graph_outputs=True)


def private(value: ir.Value, graph: ir.Graph, reader: ir.Node) -> list[ir.Node]:
    """The nodes of `graph` that work for `reader` alone, by way of `value`, in order: they can move to where it is."""
    alone: set[ir.Node] = set()
    pending = [value]
    while pending:
        one = pending.pop()
        node = one.producer()
        if node is None or node.graph is not graph or any(output.is_graph_output() for output in node.outputs):
            continue
        users = {user for output in node.outputs for user, _ in output.uses()}
        if users <= alone | {reader}:
            alone.add(node)
            pending.extend(source for source in node.inputs if source is not None)
    return [node for node in graph if node in alone]
