"""Faults in what is connected with what."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, TensorProto, helper

from .surgery import Graph, inputs, kind

NORMS = ("LayerNormalization", "RMSNormalization")


def _residuals(graph: Graph) -> list[NodeProto]:
    """Sums of two computed states."""
    weights = graph.weights
    return [
        node
        for node in graph.of("Add")
        if graph.floats(node.output[0]) and not any(name in weights for name in node.input)
    ]


@kind("residual dropped")
def no_residual(graph: Graph) -> bool:
    """A sublayer's output is not added to what it read."""
    node = graph.pick(_residuals(graph))
    if node is None:
        return False
    graph.replace(node, "Identity", [node.input[1]])
    return True


@kind("sublayer dropped")
def no_sublayer(graph: Graph) -> bool:
    """What a sublayer read is passed on alone."""
    node = graph.pick(_residuals(graph))
    if node is None:
        return False
    graph.replace(node, "Identity", [node.input[0]])
    return True


@kind("norm twice")
def norm_twice(graph: Graph) -> bool:
    """A normalised state is normalised again, without a gain."""
    node = graph.pick(graph.of(*NORMS))
    if node is None:
        return False
    graph.on_edge(node.output[0], "LpNormalization", axis=-1, p=2)
    return True


@kind("gate and up swapped")
def gate_and_up(graph: Graph) -> bool:
    """The gate of a gated unit is taken for its other branch."""
    weights = graph.weights
    for node in graph.of("Sigmoid"):
        gate = graph.producer(node.input[0])
        for product in graph.of("Mul"):
            other = next((graph.producer(name) for name in product.input if _from_matrix(graph, name, weights)), None)
            silu = next(
                (p for name in product.input if (p := graph.producer(name)) and node.output[0] in p.input), None
            )
            if gate and other and silu and gate.op_type == "MatMul" and other.output != gate.output:
                gate.input[1], other.input[1] = other.input[1], gate.input[1]
                return True
    return False


@kind("position off by one")
def position(graph: Graph) -> bool:
    """Positions count from one."""
    name = next(inputs(graph, "position_ids"), None)
    if name is None:
        return False
    graph.on_edge(name, "Add", np.array(1))
    return True


@kind("positions all zero")
def positions_zero(graph: Graph) -> bool:
    """Every token stands at the start."""
    name = next(inputs(graph, "position_ids"), None)
    if name is None:
        return False
    graph.on_edge(name, "Mul", np.array(0))
    return True


@kind("positions ignore padding")
def positions_counted(graph: Graph) -> bool:
    """Positions count padding as tokens, from the start of the mask."""
    name, mask = next(inputs(graph, "position_ids"), None), next(inputs(graph, "attention_mask"), None)
    if name is None or mask is None:
        return False
    graph.rewire(name, "planted/positions")
    ones = helper.make_node("Clip", [mask, graph.constant(np.array(1))], ["planted/ones"])
    counted = helper.make_node(
        "CumSum", ["planted/ones", graph.constant(np.array(1))], ["planted/counted"], exclusive=1
    )
    length = helper.make_node("Shape", [name], ["planted/length"], start=1, end=2)
    back = helper.make_node("Neg", ["planted/length"], ["planted/start"])
    ends, axis = graph.constant(np.array([2**62])), graph.constant(np.array([1]))
    cut = helper.make_node("Slice", ["planted/counted", "planted/start", ends, axis], ["planted/positions"])
    for i, node in enumerate((ones, counted, length, back, cut)):
        graph.nodes.insert(i, node)
    return True


@kind("padding mask ignored")
def mask_ignored(graph: Graph) -> bool:
    """Every token counts as a real one."""
    name = graph.pick(sorted(inputs(graph, "attention_mask")))
    if name is None:
        return False
    graph.on_edge(name, "Clip", np.array(1))
    return True


@kind("token types ignored")
def types_ignored(graph: Graph) -> bool:
    """Every token is of type 0."""
    name = next(inputs(graph, "token_type_ids"), None)
    if name is None:
        return False
    graph.on_edge(name, "Mul", np.array(0))
    return True


@kind("last id lost")
def id_clipped(graph: Graph) -> bool:
    """The largest id is taken for the one before it."""
    name = next(inputs(graph, "input_ids"), None)
    if name is None:
        return False
    graph.on_edge(name, "Min", np.array(254))
    return True


@kind("past forgotten")
def past_forgotten(graph: Graph) -> bool:
    """One tensor of the cache is taken for zero."""
    name = graph.pick([info.name for info in graph.model.graph.input if info.name.startswith("past_key_values")])
    if name is None:
        return False
    graph.on_edge(name, "Mul", np.array(0, np.float32))
    return True


@kind("present not what is kept")
def present_changed(graph: Graph) -> bool:
    """One tensor of the cache that is given out is not the one that was used."""
    name = graph.pick([info.name for info in graph.model.graph.output if info.name.startswith("present")])
    if name is None:
        return False
    produced = graph.producer(name)
    assert produced is not None  # an output is produced
    graph.on_edge(name, "Mul", np.array(1.01, np.float32))
    graph.rewire(name, produced.output[-1] if len(produced.output) == 1 else name, besides=graph.producer(name))
    return True


@kind("result through float16")
def through_half(graph: Graph) -> bool:
    """The first output is rounded to half precision on its way."""
    name = graph.model.graph.output[0].name
    graph.on_edge(name, "Cast", to=TensorProto.FLOAT16)
    graph.on_edge(name, "Cast", to=TensorProto.FLOAT)
    return True


@kind("result scaled")
def scaled(graph: Graph) -> bool:
    """The first output is 0.1 % too large."""
    graph.on_edge(graph.model.graph.output[0].name, "Mul", np.array(1.001, np.float32))
    return True


@kind("rows see each other")
def batch_leak(graph: Graph) -> bool:
    """A thousandth of the batch's mean leaks into every row."""
    name = graph.model.graph.output[0].name
    produced = graph.producer(name)
    assert produced is not None  # an output is produced
    produced.output[list(produced.output).index(name)] = "planted/own"
    axes, share = graph.constant(np.array([0])), graph.constant(np.array(1e-3, np.float32))
    place = list(graph.nodes).index(produced)
    leak = (
        helper.make_node("Add", ["planted/own", "planted/share"], [name]),
        helper.make_node("Mul", ["planted/mean", share], ["planted/share"]),
        helper.make_node("ReduceMean", ["planted/own", axes], ["planted/mean"], keepdims=1),
    )
    for node in leak:
        graph.nodes.insert(place + 1, node)
    return True


@kind("length baked in")
def baked(graph: Graph) -> bool:
    """One dimension that is asked of an input is a constant in place of it."""
    names = {info.name for info in graph.model.graph.input}
    node = graph.pick([node for node in graph.of("Shape") if node.input[0] in names])
    if node is None:
        return False
    graph.replace(node, "Identity", [graph.constant(np.array([7]))])
    return True


def _from_matrix(graph: Graph, name: str, weights: dict[str, TensorProto]) -> bool:
    node = graph.producer(name)
    return node is not None and node.op_type == "MatMul" and node.input[1] in weights
