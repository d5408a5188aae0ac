"""Which fused operators a graph has, and which it holds in pieces: right as they are, but no fused kernel runs those.

A runtime may put some pieces together when it loads the graph; what is said here is about the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

FUSED = (
    *("Attention", "MultiHeadAttention", "GroupQueryAttention", "RotaryEmbedding"),
    *("LayerNormalization", "RMSNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
    *("SimplifiedLayerNormalization", "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "Swish"),
    *("LSTM", "GRU", "RNN", "MatMulNBits", "FusedMatMul"),
)
# What does not change which pattern a value belongs to: layouts, casts, masks, scales.
_THROUGH = (
    *("Cast", "Dropout", "Where", "Transpose", "Reshape", "Expand", "Unsqueeze", "Squeeze", "Identity"),
    *("Concat", "Slice", "Split", "Gather"),
)


class Node(Protocol):
    """What is needed of an ONNX node."""

    op_type: str
    input: Sequence[str]
    output: Sequence[str]


def in_pieces(nodes: Iterable[Node]) -> list[str]:
    """What a graph computes in pieces that one operator could: its name, how often, and the pieces."""
    graph = _Graph(nodes)
    found = {
        "Attention": (graph.leads("Softmax", "MatMul"), "Softmax between MatMul"),
        "LayerNormalization or RMSNormalization": (graph.leads("ReduceMean", "Sqrt", "Add"), "ReduceMean and Sqrt"),
        "Gelu": (graph.count("Erf"), "Erf"),
        "Swish": (graph.swish(), "Sigmoid times its input"),
        "RotaryEmbedding": (min(1, graph.leads("Cos", "Mul")), "products with Cos and Sin"),
    }
    return [f"{name}{f' {count}' if count > 1 else ''} ({what})" for name, (count, what) in found.items() if count]


class _Graph:
    """Nodes with the way from a value to its readers."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = list(nodes)
        self._readers: dict[str, list[Node]] = {}
        for node in self._nodes:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def count(self, kind: str) -> int:
        return sum(node.op_type == kind for node in self._nodes)

    def leads(self, start: str, end: str, *through: str) -> int:
        """How many nodes of kind `start` lead to one of kind `end`, through nothing but layouts and `through`."""
        return sum(node.op_type == start and end in self._beyond(node, (*_THROUGH, *through)) for node in self._nodes)

    def swish(self) -> int:
        """x·σ(x)."""
        return sum(
            node.op_type == "Sigmoid"
            and any(node.input[0] in reader.input for reader in self._read(node) if reader.op_type == "Mul")
            for node in self._nodes
        )

    def _read(self, node: Node) -> Iterator[Node]:
        return (reader for name in node.output for reader in self._readers.get(name, ()))

    def _beyond(self, node: Node, through: Sequence[str]) -> set[str]:
        """The kinds of the nodes that read a node's values, directly or through others."""
        seen: set[int] = set()
        kinds: set[str] = set()
        left = [node]
        while left:
            for reader in self._read(left.pop()):
                kinds.add(reader.op_type)
                if reader.op_type in through and id(reader) not in seen:
                    seen.add(id(reader))
                    left.append(reader)
        return kinds
