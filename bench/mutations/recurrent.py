"""Faults in recurrent layers."""

from __future__ import annotations

from .surgery import Graph, kind, set_attribute


@kind("LSTM backwards")
def reverse(graph: Graph) -> bool:
    """The last token comes first."""
    node = graph.pick(graph.of("LSTM"))
    if node is None:
        return False
    set_attribute(node, "direction", "reverse")
    return True


@kind("LSTM without its state")
def stateless(graph: Graph) -> bool:
    """Every call starts from zero."""
    node = graph.pick(graph.of("LSTM"))
    if node is None:
        return False
    del node.input[5:]
    return True


@kind("LSTM gates in another order")
def gates(graph: Graph) -> bool:
    """Gates i, f, g, o are taken for i, o, f, g."""
    node = graph.pick([node for node in graph.of("Concat") if len(node.input) == 4 and graph.of("LSTM")])
    if node is None:
        return False
    first, second, third, fourth = node.input
    del node.input[:]
    node.input.extend([first, third, fourth, second])
    return True
