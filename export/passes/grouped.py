"""One new token in grouped-query attention: each key head read once for all its queries.

    before    GroupQueryAttention: a product of one row with the keys for each of the H query heads

    after     GroupQueryAttention with G heads, for its presents alone ┐
              q (B, G, H/G, D), presents ─▶ Attention, under a mask    ┴▶ y, present

Condition: a group of four or more, one token, no padding, and keys that stay in the processor's cache (`FITS`).

The kernel computes a group's scores one query head at a time. The standard operator takes all queries of a group as
rows of one product, which is 1.3-2.3 times as fast even though the kernel, which alone can write a cache in place,
still computes a quarter or less of its scores. Presents can be longer than what they hold, hence the mask; the rest of
them is multiplied by 0, so it has to be finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from .graph import Writer

SMALLEST = 4  # queries a group
FITS = 2**21  # numbers in the keys of all heads, beyond which the kernel is as fast or faster


def single(write: Writer, tokens: ir.Value, total: ir.Value, width: int) -> ir.Value:
    """bool: one token, and total · width numbers are not too many; lengths are int32 (1)."""
    one = write("Equal", tokens, write.constant(np.array([1], np.int32)))
    fits = write("LessOrEqual", total, write.constant(np.array([FITS // width], np.int32)))
    return write("Squeeze", write("And", one, fits))


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
