"""What an exported graph computes and moves at given sizes: operations and bytes by node, without running it.

Shapes go through the graph node by node (see `graph_shapes`), and nothing is assumed of the model: what is counted is
what the graph says.

- Operations are those of matrices, a multiply-add is two: products, attention, recurrences, convolutions. The body of
  an If, Loop or Scan counts where it runs and as often as it runs, and the node around it not at all.
- Bytes are those that nodes read and write, each its inputs and outputs once; views cost nothing, and of a table only
  the rows that are looked up. What a runtime fuses stays in its caches, so this is at most what it moves, and for one
  token after a long past, where weights and cache are nearly all of it, it is what bounds the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from pathlib import Path

import onnx
import onnx.inliner

from ..export.artifact import graph_signature
from .graph_shapes import Shapes, Tensor, Visit
from .memory import CACHED
from .operations import operations, scores

VIEWS = frozenset(("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Dropout", "Shape", "Size", "Constant"))
LOOKUPS = frozenset(("Gather", "GatherElements", "GatherND", "Slice"))  # read what they give out
WRITES = frozenset(("ScatterElements", "ScatterND"))  # write their third input into the first, in place where they can
CONTAINERS = frozenset(("If", "Loop", "Scan"))


@dataclass(frozen=True)
class Cost:
    """One call of a graph. `weights`, `cache` and `activations` are bytes that have to be in memory.

    `activations` is the most at a time, when each value is freed after its last use; attention is counted with its
    scores, which ONNX Runtime holds and a fused kernel does not.
    """

    flops: int
    bytes: int
    weights: int
    cache: int
    activations: int
    by_op: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def totals(self) -> dict[str, int]:
        """The numbers without their split by operator."""
        return {name: getattr(self, name) for name in ("flops", "bytes", "weights", "cache", "activations")}


class GraphCost:
    """The costs of one model file, at any sizes of its free axes."""

    def __init__(self, path: Path) -> None:
        model = onnx.load(path, load_external_data=False)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        self._model = model
        self._inputs = graph_signature(model.graph).inputs
        self._shapes = Shapes(model, path.parent)

    def at(self, sizes: Mapping[str, int]) -> Cost:
        """The cost of one call at these sizes of the free axes.

        Raises:
            UnknownShape: a shape that cannot be told without running the graph.
            KeyError: an axis has no size.
        """
        feeds = {spec.name: Tensor(spec.resolve(sizes), spec.dtype) for spec in self._inputs}
        visits, results = self._shapes.visit(feeds)
        flops: Counter[str] = Counter()
        moved: Counter[str] = Counter()
        for visit, times in _all(visits):
            kind = visit.node.op_type
            if kind not in CONTAINERS and not visit.folded:
                flops[kind] += times * operations(visit.node, visit.inputs, visit.outputs)
                moved[kind] += times * _moved(visit)
        named = {**feeds, **results}
        return Cost(
            flops=flops.total(),
            bytes=moved.total(),
            weights=sum(tensor.nbytes for tensor in self._shapes.weights.values()),
            cache=sum(tensor.nbytes for name, tensor in named.items() if name.startswith(CACHED)),
            activations=_most_alive(visits),
            by_op={kind: (flops[kind], moved[kind]) for kind in sorted(moved) if moved[kind]},
        )


def polynomial(counts: Mapping[int, int]) -> tuple[Fraction, Fraction, Fraction] | None:
    """The exact c0, c1, c2 of counts by length, or None when they do not lie on c0 + c1·n + c2·n².

    Raises:
        ValueError: fewer than four lengths: three lie on some parabola in any case.
    """
    if len(counts) < 4:
        raise ValueError(f"a law needs at least 4 lengths to be exact about, got {len(counts)}")
    (x0, y0), (x1, y1), (x2, y2) = [(Fraction(n), Fraction(count)) for n, count in sorted(counts.items())][:3]
    first = (y1 - y0) / (x1 - x0)
    c2 = ((y2 - y1) / (x2 - x1) - first) / (x2 - x0)
    c1 = first - c2 * (x0 + x1)
    c0 = y0 - c1 * x0 - c2 * x0 * x0
    return (c0, c1, c2) if all(c0 + c1 * n + c2 * n * n == count for n, count in counts.items()) else None


def _all(visits: Sequence[Visit], times: int = 1) -> Iterator[tuple[Visit, int]]:
    """Every visit, those in bodies included, with how often it runs."""
    for visit in visits:
        yield visit, times
        yield from _all(visit.body, times * visit.times)


def _moved(visit: Visit) -> int:
    if visit.node.op_type in VIEWS:
        return 0
    written = sum(tensor.nbytes for tensor in visit.outputs if tensor)
    if visit.node.op_type in LOOKUPS:
        return 2 * written
    if visit.node.op_type in WRITES:
        return 2 * sum(tensor.nbytes for tensor in visit.inputs[1:] if tensor)
    return written + sum(tensor.nbytes for tensor in visit.inputs if tensor)


def _most_alive(visits: Sequence[Visit]) -> int:
    """The most bytes of values that nodes made, at a time: from where each is made to where it is last used."""
    root: dict[str, str] = {}
    last: dict[str, int] = {}
    for index, visit in enumerate(visits):
        names = [root.get(name, name) for name in _used(visit)]
        if visit.node.op_type in VIEWS and names:
            root |= dict.fromkeys(visit.node.output, names[0])
        last |= dict.fromkeys(names, index)
    alive: dict[str, int] = {}
    most = 0
    for index, visit in enumerate(visits):
        if visit.node.op_type not in VIEWS:
            named = zip(visit.node.output, visit.outputs, strict=False)
            alive |= {name: tensor.nbytes for name, tensor in named if name and tensor}
        most = max(most, sum(alive.values()) + _inside(visit))
        for name in [name for name in alive if last.get(name, len(visits)) <= index]:
            del alive[name]
    return most


def _used(visit: Visit) -> Iterator[str]:
    """The names that a node reads, those that the nodes of its body take from outside included."""
    yield from filter(None, visit.node.input)
    for inner in visit.body:
        yield from _used(inner)


def _inside(visit: Visit) -> int:
    """Bytes that exist while a node runs alone: its scores, or what lives in its body."""
    query = visit.inputs[0] if visit.inputs else None
    size = query.nbytes // max(1, prod(query.shape)) if query else 0
    return size * scores(visit.node, visit.inputs, visit.outputs) + (_most_alive(visit.body) if visit.body else 0)
