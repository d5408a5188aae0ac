"""Another graph as the reference of a walk: its values under the names of those that they should be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import numpy as np

from ...export.artifact import graph_signature
from ...models.signature import Array, Feeds
from ...runtimes.reference import Float64Graph
from .pairing import pair
from .walk import told

if TYPE_CHECKING:
    import onnx

MOST_NODES = 3000  # of graphs that are aligned by the order of their operators


class Twin:
    """A graph that another one should equal. Values pair by name if most do, else by the order of the operators."""

    def __init__(self, model: onnx.ModelProto, graph: onnx.ModelProto) -> None:
        self._model = model
        self._names = pair(graph_signature(graph.graph), graph_signature(model.graph))
        self.certain, pairs = _pairs(graph, model, self._names.outputs)
        self._back = {twin: name for name, twin in pairs.items()}
        makers = {name: node for node in model.graph.node for name in node.output}
        self._makers = {name: makers[twin] for name, twin in pairs.items()}
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self.origins = {name: told(node) for name, node in self._makers.items()}

    def may_be(self, node: onnx.NodeProto, value: str) -> bool:
        """Always: the operators have been compared."""
        return True

    def run(self, feeds: Feeds, watch: Callable[[str, Array], Array | None]) -> None:
        """Evaluate the other graph."""

        def pass_on(_: onnx.NodeProto, name: str, value: Array) -> Array | None:
            return watch(self._back[name], value) if name in self._back else None

        Float64Graph(self._model).run(self._names.feeds(feeds), pass_on)

    def parameters(self, value: str) -> dict[str, Array]:
        """The stored tensors that the other node reads."""
        from onnx import numpy_helper

        names = (name for name in self._makers[value].input if name in self._stored)
        return {name: np.asarray(numpy_helper.to_array(self._stored[name])) for name in names}


def _pairs(graph: onnx.ModelProto, other: onnx.ModelProto, renamed: Mapping[str, str]) -> tuple[bool, dict[str, str]]:
    mine, theirs = list(graph.graph.node), list(other.graph.node)
    kinds = {name for node in theirs for name in node.output if name}
    names = {name: renamed.get(name, name) for node in mine for name in node.output}
    named = {name: twin for name, twin in names.items() if twin in kinds}
    if 2 * len(named) >= len(mine) or max(len(mine), len(theirs)) > MOST_NODES:
        return True, named
    my_ops, their_ops = ([node.op_type for node in nodes] for nodes in (mine, theirs))
    blocks = SequenceMatcher(None, my_ops, their_ops, autojunk=False).get_matching_blocks()
    aligned = ((mine[a + i], theirs[b + i]) for a, b, size in blocks for i in range(size))
    return False, {name: twin for one, two in aligned for name, twin in zip(one.output, two.output, strict=False)}
