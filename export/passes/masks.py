"""What an attention mask says, read from the nodes that make it.

Two kinds are understood, as `models.attention` and most exports of the field make them from `attention_mask` (B, t):

    real       Expand(Cast(Unsqueeze(attention_mask)))                    every real key, for each query
    causal     (real ∧ gap ≥ 0) ∨ gap = 0, or real ∧ gap ≥ 0              the real keys up to the query itself
               with gap = index of the query - index of the key

A constant in a comparison is read, so a band such as gap < 4096 is never taken for a causal mask, whatever the lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from .graph import constant, made_by, sizes

Kind = Literal["real", "causal"]


@dataclass(frozen=True)
class Mask:
    """`padding` is the input (B, t) that says which keys are real."""

    kind: Kind
    padding: ir.Value


def read(value: ir.Value | None) -> Mask | None:
    """What a boolean mask (B, 1, m, t) says; None where it is of another kind."""
    padding = _real(value)
    if padding is not None:
        return Mask("real", padding)
    either = made_by(value, "Or")
    if either is not None:  # a token sees itself, also where it is padding
        value = next((other for one, other in _orders(either) if _gap(one, "Equal")), None)
    padding = _bounded(value)
    return None if padding is None else Mask("causal", padding)


def _bounded(value: ir.Value | None) -> ir.Value | None:
    """real ∧ gap ≥ 0 → the padding input."""
    both = made_by(value, "And")
    if both is None:
        return None
    return next((_real(one) for one, other in _orders(both) if _real(one) and _gap(other, "GreaterOrEqual")), None)


def _real(value: ir.Value | None) -> ir.Value | None:
    """Expand(Cast(Unsqueeze(input))), Cast and Unsqueeze in any order → the input (B, t)."""
    expand = made_by(value, "Expand")
    inner = value if expand is None else expand.inputs[0]
    seen = set()
    while (node := made_by(inner, "Cast", "Unsqueeze")) is not None:
        seen.add(node.op_type)
        inner = node.inputs[0]
    spread = sizes(value if expand is None else expand.inputs[0])
    given = inner is not None and inner.is_graph_input() and len(sizes(inner)) == 2 and seen == {"Cast", "Unsqueeze"}
    return inner if given and len(spread) == 4 and spread[1:3] == (1, 1) else None


def _gap(value: ir.Value | None, comparison: str) -> bool:
    """gap ≥ 0 or gap = 0, where gap counts from each key to each query: the queries are the last of the keys."""
    node = made_by(value, comparison)
    zero = constant(node.inputs[1]) if node is not None else None
    if node is None or zero is None or zero.size != 1 or zero.item() != 0:
        return False
    gap = made_by(node.inputs[0], "Sub")
    if gap is None:
        return False
    query, key = made_by(gap.inputs[0], "Unsqueeze"), gap.inputs[1]
    axes = None if query is None else constant(query.inputs[1])
    if query is None or axes is None or axes.tolist() not in ([1], [-1], 1, -1) or not _counts(key):
        return False
    index = query.inputs[0]
    if index is key:
        return True
    tail = made_by(index, "Slice")
    return tail is not None and tail.inputs[0] is key and _runs_to_the_end(tail)


def _counts(value: ir.Value | None) -> bool:
    """0, 1, 2, …"""
    node = made_by(value, "Range")
    return node is not None and [_number(value) for value in (node.inputs[0], node.inputs[2])] == [0, 1]


def _runs_to_the_end(tail: ir.Node) -> bool:
    end, step = _number(tail.inputs[2]), 1 if len(tail.inputs) < 5 else _number(tail.inputs[4])
    return end is not None and end >= 2**31 - 1 and step == 1


def _number(value: ir.Value | None) -> float | None:
    found = constant(value)
    return None if found is None or found.size != 1 else found.item()


def _orders(node: ir.Node) -> Iterator[tuple[ir.Value | None, ir.Value | None]]:
    """Both operands, and both again the other way round."""
    first, second = node.inputs
    yield first, second
    yield second, first
