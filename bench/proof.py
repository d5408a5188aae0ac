"""Is a rewritten graph still the same function? Both in float64, on shapes at both sides of every boundary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from math import prod
from typing import Any

import onnx_ir as ir

from ..export.passes.gqa import LONG
from ..export.passes.grouped import WORTH
from ..models.signature import PAST, Array, Padding, Signature
from ..runtimes.base import RuntimeFailure
from ..runtimes.reference import Float64Graph
from .truth import SAME, distance

LENGTHS = (1, 2, 7, 33)
PASTS = (0, 1, 20)
LONG_ONES = ((LONG - 1, 0), (LONG + 6, 1))  # tokens and past on both sides of the one length at which a pass changes
ROWS: tuple[tuple[int, Padding], ...] = ((1, "none"), (3, "none"), (3, "left"), (3, "right"))
LARGEST = 2**30  # bytes of float32 weights, beyond which two graphs in float64 are too much to ask of an export


def prover(weight_bytes: int | None) -> Any:
    """What an export proves its passes with: signature → proof; None for weights that are too large."""
    return Proof if (weight_bytes or 0) <= LARGEST else None


class Proof:
    """Holds rewritten graphs to the first one that it is given."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._truth: list[tuple[str, dict[str, Array], dict[str, Array]]] = []

    def __call__(self, before: ir.Model, after: ir.Model) -> str | None:
        """What is wrong with `after`, or None."""
        try:
            if not self._truth:
                self._truth = list(self._run(Float64Graph(ir.to_proto(before))))
            graph = Float64Graph(ir.to_proto(after))
            for words, feeds, truth in self._truth:
                found = graph.run(feeds)
                for name, array in truth.items():
                    far = distance(found[name], array)
                    if far > SAME:
                        return f"{name} differs by {far:.1e} of its scale at {words}"
        except RuntimeFailure as error:
            return str(error)
        return None if self._truth else "the graph itself runs at no shape"

    def _run(self, graph: Float64Graph) -> Iterator[tuple[str, dict[str, Array], dict[str, Array]]]:
        """Words, inputs and outputs at each shape that the first graph takes: tables of positions end somewhere."""
        for sizes, padding in self._shapes():
            words = ", ".join(f"{axis} {size}" for axis, size in sorted(sizes.items()))
            feeds = self._signature.feeds(sizes, padding=padding)
            with suppress(RuntimeFailure):
                yield f"{words}, {padding} padding", feeds, graph.run(feeds)

    def _shapes(self) -> Iterator[tuple[dict[str, int], Padding]]:
        limits = [spec.limit for spec in self._signature.inputs if spec.name == "position_ids" and spec.limit]
        pasts = PASTS if self._signature.cached else (0,)
        usual = [(length, past, row) for length, past, row in product(LENGTHS, pasts, ROWS)]
        long_ones = [(*long, ROWS[0]) for long in (*LONG_ONES, *self._long_pasts())]
        for length, past, (batch, padding) in usual + long_ones:
            if all(length + past <= limit for limit in limits):
                yield self._signature.sizes(batch=batch, length=length, past=past), padding
        if len(self._signature.lengths) > 1:  # an encoder's and a decoder's are not always equal
            for length, (batch, padding) in product((2, 7), ROWS):
                yield self._signature.sizes(batch=batch, length=length, past=pasts[-1], apart=3), padding

    def _long_pasts(self) -> Iterator[tuple[int, int]]:
        """One token on both sides of the past from which groups are rows: of so many numbers in a layer's keys."""
        caches = [spec.shape for spec in self._signature.inputs if spec.name.startswith(PAST)]
        cached = [shape for shape in caches if any("past" in str(dim) for dim in shape)]
        widths = {prod(size for size in shape if isinstance(size, int)) for shape in cached}
        for width in widths:
            yield from ((1, WORTH // width - 1), (1, WORTH // width))
