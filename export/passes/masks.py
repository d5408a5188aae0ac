"""What an attention mask says, asked of the nodes that make it.

The same mask is written in a dozen ways: by index arithmetic, by a lookup in a table, by adding the lowest float. So it
is not read but run, with the nodes that make it cut out of the graph, and held to what it should be:

    real       every real key, for each query
    causal     the keys up to the query itself, in a batch without padding; whatever it is in another one

The lengths at which it is asked lie on both sides of each number that those nodes hold, so a band such as
query - key < 4096 is never taken for a causal mask. Where that is too long to run, nothing is claimed of the mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from ...models.signature import Array, Signature
from ..artifact import graph_signature
from .graph import sizes

Kind = Literal["real", "causal"]

USUAL = ((1, 0), (2, 0), (12, 0), (1, 1), (1, 11), (3, 9))  # new tokens and past ones
PAST_IT = 8  # tokens by which a length is longer than a number, so that < and ≤, of gaps and of counts, differ there
LEAST = 4 + PAST_IT  # shorter ones are those of numbers that the usual lengths are past
MANY = 16  # lengths at which a mask may change; where there are more, it is not asked
LARGEST = 2**25  # elements of a mask, beyond which it is not run
CONSTANTS = 2**29  # bytes of the constants that are needed to run it, the same
NODES = 300  # the same
SHORT = 64  # elements of a constant that is read for numbers; a longer one is a table
HIDDEN = -1e30  # a number that hides a key, when it is added to a score


@dataclass(frozen=True)
class Mask:
    """`padding` is the input (B, t) that says which keys are real, None where all are; `rank` that of the mask.

    `bounded`: in a padded batch too, each token sees some key, and none behind it. `hides` is the least number that it
    adds; None for a boolean mask.
    """

    kind: Kind
    padding: ir.Value | None
    rank: int
    bounded: bool
    hides: float | None


Read = Callable[[ir.Value | None], Mask | None]


def read(value: ir.Value | None) -> Mask | None:
    """What a boolean mask says, or one that is added to scores; None where it is of another kind, or cannot be run."""
    graph = None if value is None else value.graph
    if value is None or not isinstance(graph, ir.Graph) or value.is_graph_input():
        return None
    inputs = [one for one in graph.inputs if not one.is_initializer()]
    question = Question(ir.convenience.extract(graph, inputs, [value]))
    if not question.possible:
        return None
    asked = question.padding
    return question.answer(None if asked is None else next(one for one in inputs if one.name == asked.name))


class Question:
    """The nodes that make one mask, as a graph of their own."""

    def __init__(self, part: ir.Graph) -> None:
        self._part = part
        self._matter = _values(part.outputs[0])
        reads = [one for one in part.inputs if one in self._matter]
        self.padding = reads[0] if len(reads) == 1 else None
        stored = sum(value.const_value.nbytes for value in part.initializers.values() if value.const_value)
        known = all(one.shape is not None for one in part.inputs)
        standard = all(node.domain in ("", "ai.onnx") for node in part)
        asks = not reads or (self.padding is not None and _integers(self.padding) and len(sizes(self.padding)) == 2)
        self.possible = known and standard and asks and stored <= CONSTANTS and len(part) <= NODES

    def answer(self, padding: ir.Value | None) -> Mask | None:
        """What the mask says at all sizes that matter; None where that is nothing, or two things, or too few ran."""
        lengths = self._lengths()
        if lengths is None or len(lengths) > MANY:
            return None
        kinds: set[Kind] = {"real", "causal"}
        tokens, total, bounded, least, last = 0, 0, True, 0.0, np.array(0)
        for length, past in self._tries(lengths):
            for real in self._paddings(length + past):
                mask = self._run(length, past, real)
                if mask is None:
                    continue
                kinds &= _kinds(mask, length, real)
                if not kinds:
                    return None
                tokens, total, last = max(tokens, length), max(total, length + past), mask
                bounded &= _bounded(mask, length)
                least = min(least, float(mask.min()))
        asked = tokens > 1 and total >= max(lengths, default=0)
        if not asked or len(kinds) != 1:
            return None
        return Mask(kinds.pop(), padding, last.ndim, bounded, None if last.dtype == np.bool_ else least)

    def _lengths(self) -> set[int] | None:
        """Lengths at which a mask shows what it is: past each whole number that its nodes hold or make, and at
        the end of a table; None where it cannot be run.

        A number is what is small and the same in two runs that have no size in common.
        """
        one, other = self._values(12, 0), self._values(3, 20) if self._signature.cached else None
        other = other or self._values(5, 0)  # what asks for another input's tokens has no past
        if one is None or other is None:
            return None
        found: set[int] = set()
        for name, array in one.items():
            same = array.shape == other[name].shape and array.dtype.kind in "iuf" and np.array_equal(array, other[name])
            if same and array.size > SHORT:
                found |= set(array.shape)
            elif same:
                found |= {abs(int(x)) + PAST_IT for x in array.flat if np.isfinite(x) and x == int(x)}
        return {length for length in found if LEAST <= length <= 2**31}

    def _values(self, length: int, past: int) -> dict[str, Array] | None:
        """Every value that the mask is made from, by name; None where these sizes do not go."""
        try:
            feeds = self._feeds(length, past, np.ones((2, length + past), np.bool_))
            found: Any = self._evaluator.run(None, feeds, intermediate=True)
        except Exception:  # the reference raises what NumPy does
            return None
        return {str(one.name): np.asarray(found[one.name]) for one in self._matter if one.name in found}

    @cached_property
    def _model(self) -> onnx.ModelProto:
        return ir.to_proto(ir.Model(self._part, ir_version=10))

    @cached_property
    def _signature(self) -> Signature:
        return graph_signature(onnx.GraphProto(input=self._model.graph.input))  # the mask may be of no declared type

    @cached_property
    def _evaluator(self) -> ReferenceEvaluator:
        return ReferenceEvaluator(self._model)

    def _tries(self, lengths: set[int]) -> Iterator[tuple[int, int]]:
        """New tokens and past ones."""
        further = [size for n in sorted(lengths) for size in ((n, 0), (1, n - 1), (2, n - 2))]
        yield from ((length, past) for length, past in (*USUAL, *further) if self._signature.cached or not past)

    def _paddings(self, total: int) -> Iterator[Array]:
        """Which keys are real in two rows: all, and some where the mask asks."""
        yield np.ones((2, total), np.bool_)
        if self.padding is not None:
            some = np.random.default_rng(total).random((2, total)) < 0.5
            some[:, -1] = True
            yield some

    def _run(self, length: int, past: int, real: Array) -> Array | None:
        """The mask; None where these sizes are too large or do not go, in the graph or for its mask."""
        total = length + past
        if length * total > LARGEST:
            return None
        try:
            with np.errstate(all="ignore"):
                found: Any = self._evaluator.run(None, self._feeds(length, past, real))
        except Exception:  # the reference raises what NumPy does
            return None
        mask = np.asarray(found[0])
        rows = mask.ndim == 2 or (mask.ndim == 4 and mask.shape[0] in (1, len(real)))  # blocks are none
        return mask if rows and mask.shape[-1] == total else None

    def _feeds(self, length: int, past: int, real: Array) -> dict[str, Array]:
        """All inputs; those that are asked for their shapes alone are one number, seen as many."""
        at = self._signature.sizes(batch=len(real), length=length, past=past)
        specs = self._signature.inputs
        feeds = {spec.name: np.broadcast_to(np.zeros((), spec.dtype), spec.resolve(at)) for spec in specs}
        if self.padding is not None:
            name = str(self.padding.name)
            feeds[name] = real.astype(feeds[name].dtype).reshape(feeds[name].shape)
        return feeds


def _values(mask: ir.Value) -> set[ir.Value]:
    """What a mask is made from: all values before it, but not what is asked for its shape alone."""
    found: set[ir.Value] = set()
    pending = [mask]
    while pending:
        value = pending.pop()
        if value not in found:
            found.add(value)
            node = value.producer()
            before = () if node is None or node.op_type in ("Shape", "Size") else node.inputs
            pending.extend(one for one in before if one is not None)
    return found


def _integers(value: ir.Value) -> bool:
    return value.dtype is not None and not value.dtype.is_floating_point()


def _kinds(mask: Array, length: int, real: Array) -> set[Kind]:
    """What a mask of two rows with these real keys may be."""
    seen = _seen(mask)
    if seen is not mask and not (seen | (mask <= HIDDEN)).all():
        return set()
    found: set[Kind] = {"real"} if (seen == real[:, None, None]).all() else set()
    causal = _causal(length, real.shape[1])
    if not real.all() or (seen.shape[-2:] == causal.shape and (seen == causal).all()):
        found.add("causal")
    return found


def _bounded(mask: Array, length: int) -> bool:
    seen, causal = _seen(mask), _causal(length, mask.shape[-1])
    return seen.shape[-2:] == causal.shape and bool(seen.any(-1).all()) and not (seen & ~causal).any()


def _seen(mask: Array) -> Array:
    return mask if mask.dtype == np.bool_ else mask == 0


def _causal(length: int, total: int) -> Array:
    """The keys up to each of the last queries (n, t)."""
    index = np.arange(total)
    return index <= index[total - length :, None]
