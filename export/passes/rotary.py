"""Rotary positions as the standard operator RotaryEmbedding (opset 23), which ONNX Runtime computes in one pass.

    before    x (B, H, n, D) ─▶ Split ─▶ a, b ─▶ a·cos - b·sin ┐
                                              ─▶ b·cos + a·sin ┴▶ Concat ─▶ y          cos, sin (B, 1, n, D/2)

    after     x (B, n, H·D), Squeeze(cos), Squeeze(sin) ─▶ RotaryEmbedding ─▶ Reshape ─▶ Transpose ─▶ y

Condition: halves turn as pairs (i, i + D/2) at an opset that has the operator, and cos and sin have the batch of x:
with tables of batch 1, ONNX Runtime refuses larger batches. An x that was made from no flat value is turned as it is.

The tables stay what the graph computes from `position_ids`, so the result is equal for any positions. The rotation
inside GroupQueryAttention counts positions by itself, which is another function where a row is padded; it is not used.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from .graph import Writer, attribute, made_by, replace, sizes, unspread

OPSET = 23


def apply(model: ir.Model) -> str:
    """Rewrite every rotation by halves; says how many, or why none."""
    graph = model.graph
    if graph.opset_imports.get("", 0) < OPSET:
        return f"not applied: RotaryEmbedding is of opset {OPSET}"
    tables: dict[ir.Value, ir.Value] = {}
    count = 0
    for node in list(graph):
        parts = _parts(node)
        if parts is None:
            continue
        x, cos, sin = parts
        flat, heads = unspread(x), sizes(x)[1]
        for table in (cos, sin):
            if table not in tables:
                tables[table] = _squeezed(graph, table, f"rotary.table.{len(tables)}")
        write = Writer(graph, node, f"rotary.{count}")
        if flat is None or not isinstance(heads, int):
            turned = write("RotaryEmbedding", x, tables[cos], tables[sin])
        else:
            turned = write("RotaryEmbedding", flat, tables[cos], tables[sin], num_heads=heads)
            turned.shape, turned.type = flat.shape, flat.type
            turned = write.spread(turned, heads)
        replace(node.outputs[0], turned)
        count += 1
    return f"applied to {count} rotations" if count else "not applied: no rotation by halves"


def _squeezed(graph: ir.Graph, table: ir.Value, name: str) -> ir.Value:
    """(B, 1, n, D/2) → (B, n, D/2), right behind the table."""
    producer = table.producer()
    assert producer is not None
    after = producer.successors()
    first = next(node for node in graph if node in after)
    write = Writer(graph, first, name)
    return write("Squeeze", table, write.constant(np.array([1], np.int64)))


def _parts(node: ir.Node) -> tuple[ir.Value, ir.Value, ir.Value] | None:
    """x, cos and sin of Concat(a·cos - b·sin, b·cos + a·sin), or None."""
    if node.op_type != "Concat" or len(node.inputs) != 2 or attribute(node, "axis") not in (-1, 3):
        return None
    first, second = made_by(node.inputs[0], "Sub"), made_by(node.inputs[1], "Add")
    if first is None or second is None:
        return None
    products = [made_by(value, "Mul") for value in (*first.inputs, *second.inputs)]
    if any(product is None for product in products):
        return None
    (a, cos), (b, sin), *others = [tuple(product.inputs) for product in products if product is not None]
    halves = made_by(a, "Split")
    if halves is None or others != [(b, cos), (a, sin)] or [a, b] != list(halves.outputs):
        return None
    x = halves.inputs[0]
    return (x, cos, sin) if x is not None and cos is not None and sin is not None and _fit(x, a, b, cos, sin) else None


def _fit(x: ir.Value, a: ir.Value | None, b: ir.Value | None, cos: ir.Value, sin: ir.Value) -> bool:
    """Equal halves of the last axis, and tables (B, 1, n, D/2) of the same batch."""
    whole, half, table = sizes(x), sizes(a), sizes(cos)
    if not len(whole) == len(half) == len(table) == 4 or sizes(b) != half or sizes(sin) != table:
        return False
    return None not in table and table == (whole[0], 1, whole[2], half[3]) and whole[:3] == half[:3]
