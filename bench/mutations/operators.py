"""Faults in operators and their attributes."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from .surgery import Graph, attribute, change, kind, set_attribute

OFF_BY_ONE = {"Greater": "GreaterOrEqual", "GreaterOrEqual": "Greater", "Less": "LessOrEqual", "LessOrEqual": "Less"}


def _attention(graph: Graph) -> NodeProto | None:
    node: NodeProto | None = graph.pick(graph.of("Attention"))
    return node


def _masked(graph: Graph) -> NodeProto | None:
    node: NodeProto | None = graph.pick([n for n in graph.of("Attention") if len(n.input) > 3 and n.input[3]])
    return node


def _set(node: NodeProto | None, name: str, value: object) -> bool:
    if node is None:
        return False
    set_attribute(node, name, value)
    return True


@kind("scale dropped")
def no_scale(graph: Graph) -> bool:
    """Scores are not divided by √d."""
    return _set(_attention(graph), "scale", 1.0)


@kind("scale wrong")
def wrong_scale(graph: Graph) -> bool:
    """Scores are divided by d^0.55."""
    node = _attention(graph)
    return node is not None and _set(node, "scale", float(attribute(node, "scale", 8**-0.5)) * 0.9)


@kind("soft-cap added")
def softcap(graph: Graph) -> bool:
    """Scores are bent to ±30."""
    return _set(_attention(graph), "softcap", 30.0)


@kind("mask dropped")
def no_mask(graph: Graph) -> bool:
    """Attention sees every key."""
    node = _masked(graph)
    if node is None:
        return False
    node.input[3] = ""
    return True


@kind("mask inverted")
def mask_inverted(graph: Graph) -> bool:
    """True hides a key where it should show it."""
    node = _masked(graph)
    if node is None:
        return False
    graph.on_edge(node.input[3], "Not")
    return True


@kind("second causal mask")
def causal(graph: Graph) -> bool:
    """The operator masks causally on top of the given mask, anchored at the top left."""
    return _set(_masked(graph), "is_causal", 1)


@kind("K and V swapped")
def keys_as_values(graph: Graph) -> bool:
    """Keys are taken for values and values for keys."""
    node = _attention(graph)
    if node is None:
        return False
    node.input[1], node.input[2] = node.input[2], node.input[1]
    return True


@kind("KV heads tiled")
def tiled(graph: Graph) -> bool:
    """Query head i reads key head i mod G where it should read i div (H/G)."""
    heads = 8  # of every preset at tiny
    grouped = [node for node in graph.of("Attention") if _kv_heads(graph, node) not in (None, heads)]
    node = graph.pick(grouped)
    if node is None:
        return False
    for place in (1, 2):
        times = np.array([1, heads // (_kv_heads(graph, node) or heads), 1, 1])
        repeats = graph.constant(times)
        name = f"{node.input[place]}/tiled{place}"
        at = list(graph.nodes).index(node)
        graph.nodes.insert(at, helper.make_node("Tile", [node.input[place], repeats], [name]))
        node = graph.nodes[at + 1]
        node.input[place] = name
    return True


@kind("epsilon ten times larger")
def larger_epsilon(graph: Graph) -> bool:
    """1e-5 became 1e-4."""
    node = graph.pick(graph.of("LayerNormalization", "RMSNormalization"))
    return node is not None and _set(node, "epsilon", 10 * attribute(node, "epsilon", 1e-5))


@kind("epsilon ten times smaller")
def smaller_epsilon(graph: Graph) -> bool:
    """1e-5 became 1e-6."""
    node = graph.pick(graph.of("LayerNormalization", "RMSNormalization"))
    return node is not None and _set(node, "epsilon", attribute(node, "epsilon", 1e-5) / 10)


@kind("norm keeps the mean")
def keeps_mean(graph: Graph) -> bool:
    """LayerNorm became RMSNorm."""
    node = graph.pick(graph.of("LayerNormalization"))
    if node is None:
        return False
    graph.replace(node, "RMSNormalization", list(node.input[:2]), axis=-1, epsilon=attribute(node, "epsilon", 1e-5))
    return True


@kind("norm drops the mean")
def drops_mean(graph: Graph) -> bool:
    """RMSNorm became LayerNorm."""
    node = graph.pick(graph.of("RMSNormalization"))
    if node is None:
        return False
    graph.replace(node, "LayerNormalization", list(node.input[:2]), axis=-1, epsilon=attribute(node, "epsilon", 1e-5))
    return True


@kind("norm dropped")
def no_norm(graph: Graph) -> bool:
    """A norm is skipped."""
    node = graph.pick(graph.of("LayerNormalization", "RMSNormalization"))
    if node is None:
        return False
    graph.replace(node, "Identity", [node.input[0]])
    return True


@kind("GELU of the other kind")
def gelu(graph: Graph) -> bool:
    """tanh in place of erf, or erf in place of tanh."""
    node = graph.pick(graph.of("Gelu"))
    if node is None:
        return False
    other = "none" if attribute(node, "approximate", b"none") == b"tanh" else "tanh"
    return _set(node, "approximate", other)


@kind("activation of another kind")
def activation(graph: Graph) -> bool:
    """A leaky ReLU in place of a ReLU or GELU, a hard sigmoid in place of a sigmoid."""
    node = graph.pick(graph.of("Relu", "Gelu", "Sigmoid"))
    if node is None:
        return False
    graph.replace(node, "HardSigmoid" if node.op_type == "Sigmoid" else "LeakyRelu", list(node.input))
    return True


@kind("sine and cosine swapped")
def sine_cosine(graph: Graph) -> bool:
    """The angles of the positions start at a quarter turn."""
    pair = graph.of("Sin", "Cos")
    for node in pair:
        node.op_type = "Cos" if node.op_type == "Sin" else "Sin"
    return bool(pair)


@kind("comparison off by one")
def comparison(graph: Graph) -> bool:
    """A mask begins or ends one token too early or too late."""
    node = graph.pick(graph.of(*OFF_BY_ONE))
    if node is None:
        return False
    node.op_type = OFF_BY_ONE[node.op_type]
    return True


@kind("window off by one")
def window(graph: Graph) -> bool:
    """The window is one token wider."""
    weights = graph.weights
    bounds = [weights[node.input[1]] for node in graph.of("Less") if node.input[1] in weights]
    return change(graph.pick(bounds), lambda bound: bound + 1)


@kind("conditions joined otherwise")
def and_or(graph: Graph) -> bool:
    """One of a mask's two conditions is enough."""
    node = graph.pick(graph.of("And"))
    if node is None:
        return False
    node.op_type = "Or"
    return True


@kind("rotation backwards")
def backwards(graph: Graph) -> bool:
    """Keys and queries turn by x·cos + y·sin where it should be minus."""
    node = graph.pick([node for node in graph.of("Sub") if graph.floats(node.output[0])])
    if node is None:
        return False
    node.op_type = "Add"
    return True


@kind("joined in another order")
def concat(graph: Graph) -> bool:
    """New keys stand before the past, or halves of a head in each other's place."""
    node = graph.pick([node for node in graph.of("Concat") if len(node.input) == 2 and graph.floats(node.output[0])])
    if node is None:
        return False
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return True


def _kv_heads(graph: Graph, node: NodeProto) -> int | None:
    """Key heads of an Attention node, from the declared shape of its keys."""
    for info in (*graph.model.graph.value_info, *graph.model.graph.output):
        if info.name == node.input[1] and len(info.type.tensor_type.shape.dim) == 4:
            return int(info.type.tensor_type.shape.dim[1].dim_value) or None
    return None
