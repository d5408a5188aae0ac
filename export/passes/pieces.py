"""What attention that an exporter took apart is made of, read backwards from its last product.

How each exporter writes heads that are repeated, or transposed, differs: what is on the way is only collected here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from .graph import attribute, constant, made_by
from .masks import HIDDEN

NUMBERS = ("Mul", "Div")
LAYOUTS = ("Transpose", "Reshape", "Unsqueeze", "Squeeze", "Expand", "Identity", "Cast")
NOTHING = ("Identity", "Cast", "Dropout")  # between floats of one type, and in inference


@dataclass(frozen=True)
class Mask:
    """What is added to the scores; or, with the `number` that takes their place, the condition under which it does not
    (`seen`) or does."""

    value: ir.Value
    number: float | None = None
    seen: bool = True


@dataclass(frozen=True)
class Found:
    """What a product with the outcome of a softmax is made of.

    `queries`, `keys` and `values` are what could be q, k and v, the nearest to the product first; `numbers` are the
    operators and numbers that scale the scores.
    """

    product: ir.Node
    queries: tuple[ir.Value, ...]
    keys: tuple[ir.Value, ...]
    values: tuple[ir.Value, ...]
    numbers: tuple[tuple[str, ir.Value], ...]
    mask: Mask | None


def attentions(graph: ir.Graph) -> list[Found]:
    """Every attention in pieces of a graph, in its order."""
    return [one for node in graph if (one := _found(node)) is not None]


def _found(product: ir.Node) -> Found | None:
    """Read backwards from a product, or None."""
    if product.op_type != "MatMul" or product.domain not in ("", "ai.onnx"):
        return None
    softmax = made_by(_guarded(product.inputs[0]), "Softmax")
    if softmax is None or attribute(softmax, "axis", -1) not in (-1, 3):
        return None
    for scores, mask in _masked(_plain(softmax.inputs[0])):
        after, scaled = _scaled(scores)
        first = made_by(scaled, "MatMul")
        if first is None:
            continue
        before, query = _scaled(first.inputs[0])
        numbers, keys = _way(first.inputs[1])
        queries, values = _way(query)[1], _way(product.inputs[1])[1]
        return Found(product, queries, keys, values, (*before, *numbers, *after), mask)
    return None


def _plain(value: ir.Value | None) -> ir.Value | None:
    while (node := made_by(value, *NOTHING)) is not None:
        value = node.inputs[0]
    return value


def _guarded(value: ir.Value | None) -> ir.Value | None:
    """Without the guard against rows in which nothing is seen: Where(IsNaN(x), 0, x)."""
    value = _plain(value)
    guard = made_by(value, "Where")
    asked = None if guard is None else made_by(guard.inputs[0], "IsNaN")
    if guard is None or asked is None or asked.inputs[0] is not guard.inputs[2]:
        return value
    return _plain(guard.inputs[2])


def _masked(value: ir.Value | None) -> Iterator[tuple[ir.Value | None, Mask | None]]:
    """What the scores without their mask could be, and the mask."""
    added, chosen = made_by(value, "Add"), made_by(value, "Where")
    if added is not None:
        for scores, mask in (added.inputs, reversed(added.inputs)):
            if mask is not None:
                yield scores, Mask(mask)
    elif chosen is not None:
        where, *both = chosen.inputs
        for seen, (scores, other) in ((True, both), (False, reversed(both))):
            number = constant(other)
            if where is not None and number is not None and number.size == 1 and number.item() <= HIDDEN:
                yield scores, Mask(where, number.item(), seen)
    else:
        yield value, None


def _scaled(value: ir.Value | None) -> tuple[tuple[tuple[str, ir.Value], ...], ir.Value]:
    """The numbers that a value was multiplied with or divided by, and the value before."""
    numbers = []
    value = _plain(value)
    while (node := made_by(value, *NUMBERS)) is not None:
        one, other = node.inputs
        if node.op_type == "Mul" and _number(one):
            one, other = other, one
        if one is None or other is None or not _number(other):
            break
        numbers.append((node.op_type, other))
        value = _plain(one)
    assert value is not None  # products and sums have all inputs
    return tuple(numbers), value


def _number(value: ir.Value | None) -> bool:
    number = constant(value)
    return number is not None and number.size == 1


def _way(value: ir.Value | None) -> tuple[tuple[tuple[str, ir.Value], ...], tuple[ir.Value, ...]]:
    """The numbers on the way back through layouts, and all values on it."""
    numbers: list[tuple[str, ir.Value]] = []
    way: list[ir.Value] = []
    while value is not None:
        way.append(value)
        more, before = _scaled(value)
        numbers += more
        node = made_by(value, *LAYOUTS)
        value = before if before is not value else node.inputs[0] if node is not None else None
    return tuple(numbers), tuple(way)
