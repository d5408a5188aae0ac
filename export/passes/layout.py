"""Layouts that cancel.

    before    y ─▶ Reshape ─▶ Transpose ─▶ Transpose ─▶ Reshape ─▶        (B, n, H·D) → (B, H, n, D) → (B, n, H·D)
    after     y ─▶

Condition: the heads are split off and put back with the same sizes, and the shapes say so. The kernels of attention
read and write (B, n, H·D), where the standard operator has heads in front; four copies of the activations a layer go.
"""

from __future__ import annotations

import onnx_ir as ir

from .graph import gathers_heads, replace


def apply(model: ir.Model) -> str:
    """Remove the round trips; says how many."""
    graph = model.graph
    count = 0
    for node in list(graph):
        inner = node.op_type == "Reshape" and node.domain == "" and not node.outputs[0].is_graph_output()
        flat = gathers_heads(node) if inner else None
        if flat is not None:
            replace(node.outputs[0], flat)
            count += 1
    return f"applied to {count} round trips" if count else "not applied: no heads are split off and put back"
