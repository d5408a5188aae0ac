"""How weights are stored and operators declared: sparse, twice in branches and functions, borrowed, in half."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from .graphs import Array, model, node
from .variants import Variant, build, normal, shaped


def sparse(*, pairs: bool) -> Variant:
    """A matrix of two numbers, whose places are counted through or given axis by axis."""
    weight = np.zeros((8, 8), np.float32)
    weight[1, 2], weight[7, 0] = 1.5, -2
    x = normal(3, 8)
    places = np.argwhere(weight) if pairs else np.flatnonzero(weight)
    values = numpy_helper.from_array(weight[np.nonzero(weight)], "w")
    proto = build([node("MatMul", "x w", "y")], {"x": x}, {"y": x})
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(places.astype(np.int64)), [8, 8])
    )
    return proto, {"x": x}, {"y": x.astype(float) @ weight}, "pass"


def in_branches(second: Array, verdict: str) -> Variant:
    """A matrix in each of two branches; the condition is a scalar, which no runtime may be given as a vector."""
    first, x = normal(40, 40), normal(3, 40)
    graphs = [
        helper.make_graph(
            [node("MatMul", f"x w{i}", f"y{i}")],
            f"branch{i}",
            [],
            [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, f"w{i}")],
        )
        for i, array in enumerate((first, second))
    ]
    feeds = {"x": x, "cond": np.array(True)}
    choice = node("If", "cond", "y", then_branch=graphs[0], else_branch=graphs[1])
    proto = model([choice], shaped(*feeds.items()), shaped(("y", x)))
    return proto, feeds, {"y": x.astype(float) @ first}, verdict


def in_a_function(second: Array, verdict: str) -> Variant:
    """The same matrix in the graph and in a local function."""
    first, x = normal(40, 40), normal(3, 40)
    proto = build(
        [node("Inner", "x", "h", domain="local"), node("MatMul", "h w", "y")], {"x": x}, {"y": x}, {"w": first}
    )
    inner = [node("Constant", "", "v", value=numpy_helper.from_array(second)), node("MatMul", "a v", "b")]
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    proto.opset_import.append(versions[1])
    proto.functions.append(helper.make_function("local", "Inner", ["a"], ["b"], inner, versions[:1]))
    return proto, {"x": x}, {"y": x.astype(float) @ second @ first}, verdict


def as_a_convolution() -> Variant:
    """A table and the same numbers as the kernel of a convolution of width 1."""
    table, ids = normal(40, 40), np.array([1, 2])
    nodes = [
        node("Gather", "table ids", "e"), node("Unsqueeze", "e last", "e3"), node("Conv", "e3 kernel", "c"),
        node("Squeeze", "c last", "y"),
    ]  # fmt: skip
    constants = {"table": table, "kernel": table[..., None].copy(), "last": np.array([2])}
    want = table[ids].astype(float) @ table.T
    return build(nodes, {"ids": ids}, {"y": normal(2, 40)}, constants), {"ids": ids}, {"y": want}, "fail"


def borrowed(op: str, opset: int, factor: float = 1.0) -> Variant:
    """A norm that ONNX Runtime puts among the standard operators, where this opset has none."""
    x, g = normal(2, 3, 8), normal(8)
    s = x.astype(float)
    centred = s - s.mean(-1, keepdims=True) if op == "LayerNormalization" else s
    want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * g
    proto = build([node(op, "x g", "y", epsilon=1e-5, axis=-1)], {"x": x}, {"y": x}, {"g": g}, opset)
    return proto, {"x": x}, {"y": factor * want}, "pass" if factor == 1 else "fail"


def half_without_inputs() -> Variant:
    """A table stored in half, no reference and no arrays: there is no source to round."""
    table = normal(10, 4).astype(np.float16)
    nodes = [node("Cast", "table", "wide", to=1), node("Gather", "wide ids", "y")]
    proto = model(nodes, {"ids": ("int64", ["n"])}, {"y": ("float32", ["n", 4])}, {"table": table})
    return proto, None, None, "pass"


VARIANTS: dict[str, Callable[[], Variant]] = {
    "sparse": lambda: sparse(pairs=False),
    "sparse, places by axis": lambda: sparse(pairs=True),
    "one matrix in both branches": lambda: in_branches(normal(40, 40), "fail"),
    "a matrix in each branch": lambda: in_branches(normal(40, 40) + 1, "pass"),
    "one matrix in graph and function": lambda: in_a_function(normal(40, 40), "fail"),
    "another matrix in the function": lambda: in_a_function(normal(40, 40) + 1, "pass"),
    "a table that is a convolution as well": as_a_convolution,
    "LayerNormalization at opset 12": lambda: borrowed("LayerNormalization", 12),
    "LayerNormalization at opset 12, wrong": lambda: borrowed("LayerNormalization", 12, 1.001),
    "SimplifiedLayerNormalization": lambda: borrowed("SimplifiedLayerNormalization", 18),
    "a half table and nothing to hold it to": half_without_inputs,
}
