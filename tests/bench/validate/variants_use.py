"""Old opsets, randomness, weights stored twice, and ids that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from .graphs import model, node, softmax
from .variants import HALF, Variant, build, normal


def old(op: str, opset: int, axis: int) -> Variant:
    x = normal(2, 3, 4)
    feeds = {"x": x}
    flat = x.reshape(int(np.prod(x.shape[:axis])), -1).astype(float)
    want = np.log(softmax(flat)).reshape(x.shape) if op == "LogSoftmax" else softmax(flat).reshape(x.shape)
    return (
        build([node(op, "x", "y", axis=axis)], feeds, {"y": x}, opset=opset),
        feeds,
        {"y": want},
        "fail" if axis < 2 else "pass",
    )


def random(op: str, **attributes: Any) -> Variant:
    x = np.abs(normal(4, 50)) / 5
    feeds = {"x": np.minimum(x, 1)}
    nodes = [node(op, "x", "r", **attributes), node("Add", "x r", "y")]
    return build(nodes, feeds, {"y": x}), feeds, None, "fail"


def dropout(opset: int) -> Variant:
    """Before opset 12 it has no mode, and does nothing at inference."""
    x = normal(4, 50)
    feeds = {"x": x}
    return build([node("Dropout", "x", "y", ratio=0.5)], feeds, {"y": x}, opset=opset), feeds, {"y": x}, "pass"


def dropout_by_identity() -> Variant:
    """A mode that is true after an operator."""
    x = normal(4, 50)
    feeds = {"x": x}
    nodes = [node("Not", "off", "on"), node("Dropout", "x ratio on", "y")]
    return build(nodes, feeds, {"y": x}, {"off": np.array(False), "ratio": np.float32(0.5)}), feeds, {"y": x}, "fail"


def twice(dtype: Any, where: str) -> Variant:
    table = (8 * normal(40, 16)).astype(dtype)
    nodes = [
        node("Gather", "table ids", "x"),
        node("Cast", "x", "xf", to=1),
        node("Cast", "head", "hf", to=1),
        node("MatMul", "xf hf", "y"),
    ]
    constants = {"table": table}
    if where == "constant":
        nodes.insert(0, node("Constant", "", "head", value=numpy_helper.from_array(np.ascontiguousarray(table.T))))
    else:
        constants["head"] = np.ascontiguousarray(table.T)
    proto = model(nodes, {"ids": ("int64", ["n"])}, {"y": ("float32", ["n", 40])}, constants)
    ids = np.array([3, 1, 39])
    t = table.astype(float)
    return proto, {"ids": ids}, {"y": t[ids] @ t.T}, "fail"


def ids(dtype: Any, value: int, through: str = "") -> Variant:
    table = normal(10, 4)
    nodes = [node("Gather", "table i", "y")]
    if through == "Cast":
        nodes.insert(0, node("Cast", "ids", "i", to=TensorProto.INT64))
    elif through == "Reshape":
        nodes.insert(0, node("Reshape", "ids flat", "i"))
    else:
        nodes[0].input[1] = "ids"
    if through == "Embedding":
        nodes = [node("Transpose", "flipped", "table", perm=[1, 0]), node("Gather", "table ids", "y")]
    constants = {"flipped": np.ascontiguousarray(table.T)} if through == "Embedding" else {"table": table}
    if through == "Reshape":
        constants["flat"] = np.array([-1])
    proto = model(
        nodes, {"ids": ("int32" if through == "Cast" else "int64", ["n"])}, {"y": ("float32", ["n", 4])}, constants
    )
    given = np.array([1, value], dtype)
    return proto, {"ids": given}, {"y": table[given.astype(int) % 10]}, "error"


VARIANTS: dict[str, Callable[[], Variant]] = {
    "LogSoftmax at opset 11": lambda: old("LogSoftmax", 11, 1),
    "Softmax at opset 9": lambda: old("Softmax", 9, 0),
    "Softmax at opset 11 over the last axis": lambda: old("Softmax", 11, 2),
    "random noise": lambda: random("RandomNormalLike"),
    "uniform noise": lambda: random("RandomUniformLike"),
    "draws": lambda: random("Bernoulli"),
    "dropout at opset 10": lambda: dropout(10),
    "dropout whose mode is computed": dropout_by_identity,
    "tied weights doubled in half": lambda: twice(HALF, "initializer"),
    "tied weights doubled in a Constant": lambda: twice(np.float32, "constant"),
    "tied weights doubled in int8": lambda: twice(np.int8, "initializer"),
    "ids as int32": lambda: ids(np.int32, 2),
    "ids as float": lambda: ids(np.float32, 2),
    "an id too large": lambda: ids(np.int64, 10),
    "an id too large through a cast": lambda: ids(np.int32, 10, "Cast"),
    "an id too large through a reshape": lambda: ids(np.int64, 99, "Reshape"),
    "an id too negative": lambda: ids(np.int64, -11),
    "an id too large for a turned table": lambda: ids(np.int64, 10, "Embedding"),
}
