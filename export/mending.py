"""What the exporter's own fusions make and ONNX Runtime refuses at batch 2 or more, put right.

Where a model's positions are the same for every row, the RotaryEmbedding that is fused from it gets tables of batch 1.
The checker lets that pass; the kernel wants the batch of its first input.
"""

from __future__ import annotations

import onnx_ir as ir


def mend(model: ir.Model) -> None:
    """Expand the tables of each RotaryEmbedding from batch 1 to the batch of what it turns, once for each table."""
    expanded: dict[ir.Value, ir.Value] = {}
    for node in list(model.graph):
        if node.op_type != "RotaryEmbedding" or node.domain != "" or any(node.inputs[3:]):
            continue
        for index in (1, 2):
            table, turned = node.inputs[index], node.inputs[0]
            if table is None or turned is None or _rows(table) != 1:
                continue
            if table not in expanded:
                expanded[table] = _expand(model.graph, node, table, turned)
            node.replace_input_with(index, expanded[table])


def _rows(table: ir.Value) -> int | ir.SymbolicDim | None:
    """The first dimension: of the table, or of what the fusion sliced and squeezed it from."""
    producer = table.producer()
    while table.shape is None and producer is not None and producer.inputs and producer.inputs[0] is not None:
        table = producer.inputs[0]
        producer = table.producer()
    return table.shape[0] if table.shape else None


def _expand(graph: ir.Graph, before: ir.Node, table: ir.Value, turned: ir.Value) -> ir.Value:
    """(1, n, D/2) → (batch of `turned`, n, D/2)."""
    tape = ir.tape.Tape()
    batch = tape.op("Shape", [turned], {"start": 0, "end": 1})
    ones = tape.initializer(ir.tensor([1, 1], dtype=ir.DataType.INT64), name=f"{table.name}_ones")
    expanded = tape.op("Expand", [table, tape.op("Concat", [batch, ones], {"axis": 0})])
    expanded.name = f"{table.name}_expanded"
    graph.register_initializer(ones)
    graph.insert_before(before, tape.nodes)
    return expanded
