"""One new token in grouped-query attention: each key head read once for all its queries.

    before    GroupQueryAttention: a product of one row with the keys for each of the H query heads

    after     past, new ─▶ present: written where it belongs, or put behind
              q (B, G, H/G, D), present ─▶ Attention, under a mask    ─▶ y

Condition: a group of `SMALLEST` or more, one token, no padding, and keys that are many (`WORTH`) and yet stay in the
processor's cache (`FITS`).

The kernel computes a group's scores one query head at a time. The standard operator takes all queries of a group as
rows of one product. Where past and present share one buffer, ScatterElements writes a row and copies nothing; where the
past has no room for it, Concat copies it as it did before. Presents can be longer than what they hold, hence the mask;
the rest of them is multiplied by 0, so it has to be finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from .graph import Writer, branch

SMALLEST = 4  # queries a group
WORTH = 2**16  # numbers in the keys of all heads, up to which the kernel is faster: one node in place of ten
FITS = 2**21  # numbers in the keys of all heads, beyond which the kernel is as fast or faster


def single(write: Writer, tokens: ir.Value, total: ir.Value, width: int) -> ir.Value:
    """bool: one token, and total · width numbers are neither few nor too many; lengths are int32 (1)."""
    one = write("Equal", tokens, write.constant(np.array([1], np.int32)))
    fits = write("LessOrEqual", total, write.constant(np.array([FITS // width], np.int32)))
    many = write("Greater", total, write.constant(np.array([WORTH // width], np.int32)))
    return write("Squeeze", write("And", one, write("And", fits, many)))


def extend(
    write: Writer,
    past: tuple[ir.Value, ir.Value],
    new: tuple[ir.Value, ir.Value],
    total: ir.Value,
    places: ir.Value,
    name: str,
) -> list[ir.Value]:
    """Presents (B, G, capacity, D) of pasts (B, G, capacity, D), or (B, G, p, D), and new tokens (B, G, n, D).

    The places of the new tokens are int32 (n, 1), and all tokens are `total`.
    """
    room = write("Cast", write("Shape", past[0], start=2, end=3), to=ir.DataType.INT32)
    enough = write("Squeeze", write("GreaterOrEqual", room, total))

    def written(inside: Writer) -> list[ir.Value]:
        place = inside("Expand", places, inside("Shape", new[0]))
        return [inside("ScatterElements", old, place, one, axis=2) for old, one in zip(past, new, strict=True)]

    def behind(inside: Writer) -> list[ir.Value]:
        return [inside("Concat", old, one, axis=2) for old, one in zip(past, new, strict=True)]

    either = {"then_branch": branch(f"{name}.written", written), "else_branch": branch(f"{name}.behind", behind)}
    return list(write.node("If", [enough], either, 2).outputs)


def attend(
    write: Writer, query: ir.Value, key: ir.Value, value: ir.Value, total: ir.Value, groups: int, rows: int, scale: Any
) -> ir.Value:
    """y (B, 1, H·D) of queries (B, 1, H·D) and presents (B, G, capacity, D), of which the first `total` are seen."""
    heads = write("Reshape", query, write.constant(np.array([0, groups, rows, -1], np.int64)))
    held = write("Squeeze", write("Cast", write("Shape", key, start=2, end=3), to=ir.DataType.INT32))
    index = write("Range", write.constant(np.int32(0)), held, write.constant(np.int32(1)))
    seen = write("Expand", write("Less", index, total), write.constant(np.array([rows, 1], np.int64)))
    settings = {} if scale is None else {"scale": scale}
    y = write("Attention", heads, key, value, seen, **settings)
    return write("Reshape", y, write.constant(np.array([0, 1, -1], np.int64)))
