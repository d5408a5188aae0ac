"""Writing a graph: weights inside the file, or beside it where they are many; each stored once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import onnx_ir as ir

EXTERNAL_ABOVE = 3 * 2**29  # bytes of weights: a protobuf file ends at 2 GiB, and it is held in memory whole
INLINE_BELOW = 1024  # bytes of a constant that stays in the graph, where shape inference reads it
ALIGNMENT = 65536  # of offsets in external data, so that a runtime can map them into memory on any system
SLACK = 1.02  # of the source's weights
CONSTANTS = 2**16  # bytes of constants that a graph may have of its own: masks, shapes, tables of positions


class DoubledWeights(Exception):
    """A graph that stores more than its source; the message names the two initializers that are one."""


def save(model: ir.Model, path: Path, *, external: bool = False) -> None:
    """Write a model; its weights go to `<name>.data` beside it if asked for, or if they are many.

    Weights that are made on demand are made one at a time, in the order of the graph, and not kept.

    Raises:
        ValueError: a weight could not be made; the message says why.
        OSError: the disk is full.
    """
    outside = external or stored_bytes(model) > EXTERNAL_ABOVE
    name = f"{path.name}.data" if outside else None
    try:
        ir.save(model, path, external_data=name, size_threshold_bytes=INLINE_BELOW, alignment=ALIGNMENT)
    except ir.serde.SerdeError as error:  # wrapped around what was raised, once a level
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise cause from None


def stored_bytes(model: ir.Model) -> int:
    """The bytes of all initializers, those of subgraphs included."""
    values = (value for graph in model.graphs() for value in graph.initializers.values())
    return sum(value.const_value.nbytes for value in values if value.const_value)


def refuse_doubled(model: ir.Model, source_bytes: int) -> None:
    """Hold a traced graph to the bytes of its source's weights, both in float32.

    Raises:
        DoubledWeights: it stores more, and by how much, and which initializer is there twice.
    """
    stored = stored_bytes(model)
    if stored <= SLACK * source_bytes + CONSTANTS:
        return
    pair = next(_doubled(model), None)
    which = f"{pair[0]} and {pair[1]} hold the same numbers" if pair else f"the largest is {_largest(model)}"
    raise DoubledWeights(f"the graph stores {stored:,} bytes of weights and the source has {source_bytes:,}: {which}")


def _doubled(model: ir.Model) -> Iterator[tuple[str, str]]:
    """Pairs of initializers that are equal, or equal once one is transposed; larger ones first."""
    weights = [v for v in model.graph.initializers.values() if v.const_value and v.const_value.nbytes >= INLINE_BELOW]
    weights.sort(key=lambda value: -value.const_value.nbytes)  # type: ignore[union-attr]
    for one, other in combinations(weights, 2):
        a, b = one.const_value, other.const_value
        assert a is not None
        assert b is not None
        if sorted(a.shape.numpy()) == sorted(b.shape.numpy()) and _same(a.numpy(), b.numpy()):
            yield one.name or "", other.name or ""


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return (a.shape == b.shape and np.array_equal(a, b)) or (a.shape == b.T.shape and np.array_equal(a, b.T))


def _largest(model: ir.Model) -> str:
    initializers = (value for value in model.graph.initializers.values() if value.const_value)
    return max(initializers, key=lambda value: value.const_value.nbytes).name or ""  # type: ignore[union-attr]
