"""Attention to all real keys as ONNX Runtime's MultiHeadAttention, whose kernel never holds the n² scores.

    before    q, k, v, mask (B, 1, n, t) ─▶ Attention ─▶ y

    after     q / √D, 1    ─▶ Concat ─▶ q⁺ (B, n, H·(D+1)) ┐
              k, (0 | -∞) ─▶ Concat ─▶ k⁺ (B, t, H·(D+1)) ├▶ MultiHeadAttention(scale 1) ─▶ y
                                              v (B, t, H·D) ┘

Condition: the mask says which keys are real and nothing else (`masks`), or there is none; keys have a head for each
query head, and nothing else reads the scores.

Why one more number a head: given a mask, the kernel falls back to whole score matrices. But a mask of keys is a score
of keys: with 1 behind every query and -1e30 behind every padded key, q⁺·k⁺ = q·k/√D + mask, and exp of it is exactly 0.
Every row has a real key. The division stands in the graph because an attribute would round 1/√D to float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx_ir as ir

from . import masks
from .graph import MICROSOFT, Writer, attribute, heads_of, plain, replace, sizes

HIDDEN = -1e30  # below every score: exp of it is 0 in float32 and in float64


@dataclass(frozen=True)
class Columns:
    """What is appended to each head, shared by all layers with one padding: (B, n, H, 1) and (B, t, H, 1)."""

    query: ir.Value
    key: ir.Value


def apply(model: ir.Model) -> str:
    """Rewrite every Attention to all real keys; says how many, or why none."""
    graph = model.graph
    nodes = [node for node in graph if node.op_type == "Attention" and node.domain == ""]
    read = cache(masks.read)
    sites = [site for node in nodes if (site := _site(node, read)) is not None]
    if not nodes:
        return "not applied: the graph has no Attention operator"
    if not sites:
        return f"not applied: no mask of {len(nodes)} Attention says which keys are real, and no more"
    columns: dict[object, Columns | None] = {}
    for count, (node, padding) in enumerate(sites):
        write = Writer(graph, node, f"mha.{count}")
        shared = padding, sizes(node.inputs[0])[1:3]
        if shared not in columns:
            columns[shared] = None if padding is None else _columns(write, node, padding)
        _rewrite(write, node, columns[shared])
        graph.remove(node, safe=True)
    return f"applied to {len(sites)} of {len(nodes)} Attention"


def _site(node: ir.Node, read: masks.Read) -> tuple[ir.Node, ir.Value | None] | None:
    """An Attention node that fits, with the input that says what is padding, if there is one; or None."""
    query, key, value, mask = (*node.inputs, None, None)[:4]
    shapes = [sizes(one) for one in (query, key, value)]
    fixed = all(len(shape) == 4 and isinstance(shape[1], int) and isinstance(shape[3], int) for shape in shapes)
    if not plain(node) or not fixed or len({shape[1] for shape in shapes}) != 1 or attribute(node, "is_causal", 0):
        return None
    if mask is None:
        return node, None
    says = read(mask)
    return (node, says.padding) if says is not None and says.kind == "real" else None


def _columns(write: Writer, node: ir.Node, padding: ir.Value) -> Columns:
    query = node.inputs[0]
    assert query is not None
    heads = heads_of(query)
    one = write.constant(np.array([1], np.int64))
    shape = write("Concat", write("Shape", write.tokens_first(query), start=0, end=3), one, axis=0)
    real = write("Unsqueeze", write("Cast", padding, to=ir.DataType.BOOL), write.constant(np.array([2, 3], np.int64)))
    column = write("Where", real, write.constant(np.float32(0)), write.constant(np.float32(HIDDEN)))
    return Columns(
        query=write("Expand", write.constant(np.float32(1)), shape),
        key=write("Expand", column, write.constant(np.array([1, 1, heads, 1], np.int64))),
    )


def _rewrite(write: Writer, node: ir.Node, columns: Columns | None) -> None:
    query, key, value = node.inputs[:3]
    assert query is not None
    assert key is not None
    assert value is not None
    heads, head = heads_of(query), sizes(query)[3]
    scale = attribute(node, "scale")
    rows, keys = write.tokens_first(query), write.tokens_first(key)
    if scale is None:
        rows = write("Div", rows, write("Sqrt", write.constant(np.float32(head))))
    if columns is not None:
        rows, keys = (write("Concat", one, more, axis=3) for one, more in ((rows, columns.query), (keys, columns.key)))
    flat = write.constant(np.array([0, 0, -1], np.int64))
    y = write(
        "MultiHeadAttention",
        write("Reshape", rows, flat),
        write("Reshape", keys, flat),
        write.flat(value),
        domain=MICROSOFT,
        num_heads=heads,
        scale=1.0 if scale is None else scale,
    )
    replace(node.outputs[0], write.spread(y, heads))
