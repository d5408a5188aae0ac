"""The kinds of faults that public trackers report, in other clothes: other operators, types, sizes, opsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from .conftest import Judge
from .graphs import Array, Shape, attention, hidden, model, node, softmax

Variant = tuple[onnx.ModelProto, dict[str, Array] | None, dict[str, Array] | None, str]
HALF = np.float16


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def shaped(*arrays: tuple[str, Array]) -> dict[str, tuple[str, Shape]]:
    return {name: (array.dtype.name, list(array.shape)) for name, array in arrays}


def build(nodes: Any, feeds: dict[str, Array], outs: dict[str, Any], constants: Any = None, opset: int = 18) -> Any:
    """A model for these feeds, at their very sizes."""
    ms = any(one.domain == "com.microsoft" for one in nodes)
    proto = model(
        nodes, shaped(*feeds.items()), {k: (a.dtype.name, list(a.shape)) for k, a in outs.items()}, constants, opset
    )
    proto.ir_version = 10 if opset <= 22 else 11
    if ms:
        proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto


# --- 01, 02, 03, 04, 06, 08: masks and the Attention operator


def infinite_row() -> Variant:
    """A bias that hides a whole row, as it comes: NaN where torch gives zeros."""
    q = normal(1, 3, 5, 16)
    bias = np.zeros((5, 5), np.float32)
    bias[2] = -np.inf
    nodes = [
        node("Transpose", "k", "t", perm=[0, 1, 3, 2]),
        node("MatMul", "q t", "s"),
        node("Mul", "s c", "m"),
        node("Add", "m bias", "b"),
        node("Softmax", "b", "p"),
        node("MatMul", "p v", "y"),
    ]
    feeds = {"q": q, "k": q + 1, "v": q - 1, "bias": bias}
    with np.errstate(invalid="ignore"):
        want = np.nan_to_num(attention(q, q + 1, q - 1, bias), nan=0.0)
    return build(nodes, feeds, {"y": q}, {"c": np.float32(0.25)}), feeds, {"y": want}, "fail"


def causal(queries: int, keys: int, opset: int, groups: int = 2) -> Variant:
    """Fewer or more queries than keys, no past: the triangle begins at the top left."""
    q, k, v = normal(2, 4, queries, 8), normal(2, groups, keys, 8), normal(2, groups, keys, 8) + 1
    feeds = {"q": q, "k": k, "v": v}
    spread = [np.repeat(x, 4 // groups, 1) for x in (k, v)]
    want = attention(q, *spread, hidden(np.arange(queries)[:, None] >= np.arange(keys)))
    return (
        build([node("Attention", "q k v", "y", is_causal=1)], feeds, {"y": q}, opset=opset),
        feeds,
        {"y": want},
        "pass",
    )


def flat_heads() -> Variant:
    """Heads side by side in the last axis, and present keys without past ones."""
    q, k, v = (normal(2, 6, 24) + i for i in range(3))
    feeds = {"q": q, "k": k, "v": v}

    def split(x: Array) -> Array:
        return x.reshape(2, 6, 3, 8).swapaxes(1, 2)

    want = attention(split(q), split(k), split(v)).swapaxes(1, 2).reshape(2, 6, 24)
    one = node("Attention", "q k v", "y pk pv", q_num_heads=3, kv_num_heads=3)
    outs = {"y": q, "pk": split(k), "pv": split(v)}
    return build([one], feeds, outs, opset=23), feeds, {"y": want, "pk": split(k), "pv": split(v)}, "pass"


def capped(order: str) -> Variant:
    """Scores bent by a cap of 5 before the mask, or after it."""
    q = normal(1, 2, 6, 8)
    mask = np.tri(6, dtype=bool)
    hide = [node("Where", "mask {} low", "h")]
    bend = [node("Div", "{} cap", "d"), node("Tanh", "d", "t"), node("Mul", "t cap", "b")]
    first, second = (bend, hide) if order == "cap" else (hide, bend)
    nodes = [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "s"), node("Mul", "s c", "m")]
    at = "m"
    for group in (first, second):
        for one in group:
            for i, name in enumerate(one.input):
                one.input[i] = at if name == "{}" else name
        at = group[-1].output[0]
    nodes += [*first, *second, node("Softmax", at, "p"), node("MatMul", "p v", "y")]
    v = q.copy()
    v[:, :, 4] = 500
    feeds = {"q": q, "k": q, "v": v, "mask": mask}
    scores = q.astype(float) @ q.astype(float).swapaxes(-1, -2) / np.sqrt(8)
    want = softmax(np.where(mask, 5 * np.tanh(scores / 5), -np.inf)) @ v
    constants = {"c": np.float32(8**-0.5), "cap": np.float32(5), "low": np.float32(-np.inf)}
    return build(nodes, feeds, {"y": q}, constants), feeds, {"y": want}, "pass" if order == "cap" else "fail"


def cap_attribute() -> Variant:
    q = normal(1, 2, 6, 8)
    mask = np.tri(6, dtype=bool)
    feeds = {"q": q, "k": q, "v": q, "mask": mask}
    scores = q.astype(float) @ q.astype(float).swapaxes(-1, -2) / np.sqrt(8)
    want = softmax(np.where(mask, 2 * np.tanh(scores / 2), -np.inf)) @ q
    return (
        build([node("Attention", "q k v mask", "y", softcap=2.0)], feeds, {"y": q}, opset=23),
        feeds,
        {"y": want},
        "pass",
    )


def zero_times_infinity(dtype: Any, opset: int) -> Variant:
    """(1 - mask)·-inf from an integer mask over keys."""
    q = normal(2, 1, 4, 8, dtype=dtype)
    mask = np.array([[1, 1, 1, 1], [1, 1, 1, 0]])
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        node("Cast", "mask", "f", to=kind),
        node("Sub", "one f", "h"),
        node("Mul", "h low", "b"),
        node("Unsqueeze", "b axes", "bias"),
        node("Transpose", "k", "t", perm=[0, 1, 3, 2]),
        node("MatMul", "q t", "s"),
        node("Add", "s bias", "m"),
        node("Softmax", "m", "p"),
        node("MatMul", "p v", "y"),
    ]
    constants = {"one": np.array(1, dtype), "low": np.array(-np.inf, dtype), "axes": np.array([1, 2])}
    feeds = {"q": q, "k": q, "v": q, "mask": mask}
    want = softmax(q.astype(float) @ q.astype(float).swapaxes(-1, -2) + hidden(mask[:, None, None] > 0)) @ q.astype(
        float
    )
    return build(nodes, feeds, {"y": q}, constants, opset), feeds, {"y": want}, "fail"


def cache_length(wrong: int) -> Variant:
    """A cache with a place for each key and the number of valid ones, three heads, two new tokens."""
    q, k, v = normal(2, 3, 2, 8), normal(2, 3, 7, 8), normal(2, 3, 7, 8) + 1
    valid = np.array([6, 4])
    at = valid[:, None] - 2 + np.arange(2)
    seen = np.arange(7)[None, None] <= at[:, :, None]
    feeds = {"q": q, "k": k, "v": v, "valid": valid - wrong}
    want = attention(q, k, v, hidden(seen[:, None]))
    one = node("Attention", "q k v _ _ _ valid", "y", is_causal=1)
    return build([one], feeds, {"y": q}, opset=24), feeds, {"y": want}, "fail" if wrong else "pass"


# --- 09, 11: fusions


def norm_pattern(*, keep: int, dtype: Any = np.float32, epsilon: float = 1e-5) -> Variant:
    """A norm in pieces; with keepdims=0 it is none, and runtimes are known to fuse it all the same."""
    x, g = normal(6, 6), normal(6) + 1
    mean: Callable[[str, str], Any] = lambda i, o: node("ReduceMean", i, o, axes=[-1], keepdims=keep)  # noqa: E731
    nodes = [
        mean("x", "mu"),
        node("Sub", "x mu", "c"),
        node("Mul", "c c", "c2"),
        mean("c2", "v"),
        node("Add", "v e", "ve"),
        node("Sqrt", "ve", "s"),
        node("Div", "c s", "n"),
        node("Mul", "n g", "y"),
    ]
    d = x.astype(float)
    c = d - d.mean(-1, keepdims=bool(keep))
    want = c / np.sqrt((c**2).mean(-1, keepdims=bool(keep)) + epsilon) * g
    right = model(nodes, shaped(("x", x)), shaped(("y", x)), {"e": np.float32(epsilon), "g": g}, 17)
    return right, {"x": x}, {"y": want}, "pass"


def wide_gain(shape: tuple[int, ...]) -> Variant:
    """A residual sum and a norm whose gain has more axes than one."""
    x, r, g = normal(2, 3, 8), normal(2, 3, 8) + 1, normal(8).reshape(shape)
    nodes = [node("Add", "x r", "s"), node("LayerNormalization", "s g b", "y", axis=-1)]
    s = x.astype(float) + r
    want = (s - s.mean(-1, keepdims=True)) / np.sqrt(s.var(-1, keepdims=True) + 1e-5) * g + g
    feeds = {"x": x, "r": r}
    return build(nodes, feeds, {"y": x}, {"g": g, "b": g}), feeds, {"y": want}, "pass"


# --- 15: quantisation


def quantised_rows(*, alone: bool) -> Variant:
    """Dynamic int8 by hand: one scale for the batch."""
    w = normal(12, 20)
    scale = np.float32(np.abs(w).max() / 127)
    x = np.concatenate([normal(1, 5, 12), (1 if alone else 30) * normal(1, 5, 12) + (0 if alone else 3)])
    x = x[:1] if alone else x
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z", "i"),
        node("Cast", "i", "f", to=1),
        node("Mul", "s ws", "both"),
        node("Mul", "f both", "y"),
    ]
    feeds = {"x": x}
    proto = model(
        nodes,
        {"x": ("float32", ["b", 5, 12])},
        {"y": ("float32", ["b", 5, 20])},
        {"w": np.rint(w / scale).astype(np.int8), "ws": scale},
    )
    return proto, feeds, None, "pass" if alone else "fail"


# --- 14, 19, 24, 25, 35: positions


def empty_past(dtype: Any) -> Variant:
    k, past = normal(2, 4, 3, 8, dtype=dtype), np.zeros((2, 4, 0, 8), dtype)
    nodes = [node("Concat", "past k", "present", axis=-2), node("Attention", "q present present", "y", is_causal=1)]
    feeds = {"q": k, "k": k, "past": past}
    free: Shape = [2, 4, "past", 8]
    proto = model(
        nodes,
        {**shaped(("q", k), ("k", k)), "past": (k.dtype.name, free)},
        {"y": (k.dtype.name, [2, 4, 3, 8]), "present": (k.dtype.name, [2, 4, "past + 3", 8])},
        opset=23,
    )
    k64 = k.astype(float)
    return proto, feeds, {"y": attention(k64, k64, k64, hidden(np.tri(3, dtype=bool))), "present": k}, "pass"


def angles(dtype: Any, positions: int) -> Variant:
    """Sine of position·frequency; in half the product is off by whole radians far out."""
    frequencies = 10000.0 ** -(np.arange(16) / 16)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        node("Cast", "pos", "p", to=kind),
        node("Mul", "p f", "a"),
        node("Cast", "a", "w", to=1),
        node("Sin", "w", "y"),
    ]
    pos = np.arange(positions)[:, None]
    want = np.sin(pos * frequencies.astype(np.float32).astype(float))
    proto = model(nodes, {"pos": ("int64", ["n", 1])}, {"y": ("float32", ["n", 16])}, {"f": frequencies.astype(dtype)})
    return proto, {"pos": pos}, {"y": want}, "fail" if dtype is HALF else "pass"


def slopes(right: bool) -> Variant:
    """ALiBi with 12 heads, as the bias that is added to scores."""
    two = [2.0 ** -(i + 1) for i in range(8)] + [2.0 ** -(0.5 + i) for i in range(4)]
    plain = [2.0 ** (-8 * (i + 1) / 12) for i in range(12)]
    distance = np.arange(7)[None] - np.arange(7)[:, None]
    stored = np.array(two if right else plain).astype(np.float32)[:, None, None]
    q = normal(1, 12, 7, 4)
    bias = (np.array(two)[:, None, None] * distance + hidden(np.tri(7, dtype=bool))).astype(float)
    nodes = [node("Mul", "slopes distance", "b"), node("Add", "b mask", "bias"), node("Attention", "q q q bias", "y")]
    constants = {
        "slopes": stored,
        "distance": distance.astype(np.float32),
        "mask": hidden(np.tri(7, dtype=bool)).astype(np.float32),
    }
    feeds = {"q": q}
    return (
        build(nodes, feeds, {"y": q}, constants, 23),
        feeds,
        {"y": attention(q, q, q, bias)},
        "pass" if right else "fail",
    )


# --- 21, 23: half precision


def half_fill(value: float) -> Variant:
    """A mask fill that float16 cannot hold, in a row that hides all."""
    x = normal(3, 5, dtype=HALF)
    mask = np.array([[True] * 5, [False] * 5, [True, False] * 2 + [True]])
    nodes = [node("Cast", "fill", "low", to=10), node("Where", "mask x low", "m"), node("Softmax", "m", "y")]
    want = softmax(np.where(mask, x.astype(float), value))
    feeds = {"x": x, "mask": mask}
    return (
        build(nodes, feeds, {"y": x}, {"fill": np.float32(value)}),
        feeds,
        {"y": want},
        "fail" if value < -65504 else "pass",
    )


def clipped(limit: float) -> Variant:
    """A factor of 30000 that a converter has clipped."""
    x = np.abs(normal(4, 6, dtype=HALF))
    feeds = {"x": x}
    proto = build(
        [node("Min", "x c", "m"), node("Div", "m c", "d"), node("Tanh", "d", "y")], feeds, {"y": x}, {"c": HALF(limit)}
    )
    x64 = 1000 * x.astype(float)
    feeds = {"x": x64.astype(HALF)}
    return (
        proto,
        feeds,
        {"y": np.tanh(np.minimum(feeds["x"].astype(float), 30000) / 30000)},
        "pass" if limit == 30000 else "fail",
    )


# --- 27, 28, 30, 47, 51


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


# --- 33: weights stored twice


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


# --- 45, 46: inputs


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
    "a row that is hidden by its bias": infinite_row,
    "causal, 2 queries of 7 keys": lambda: causal(2, 7, 23),
    "causal, 7 queries of 3 keys": lambda: causal(7, 3, 23, 4),
    "causal, 1 query, opset 24": lambda: causal(1, 5, 24, 1),
    "heads in the last axis, present without past": flat_heads,
    "cap, then mask": lambda: capped("cap"),
    "mask, then cap": lambda: capped("mask"),
    "cap as an attribute": cap_attribute,
    "0·inf": lambda: zero_times_infinity(np.float32, 13),
    "0·inf in half": lambda: zero_times_infinity(HALF, 20),
    "cache length right": lambda: cache_length(0),
    "cache length before the write": lambda: cache_length(2),
    "norm in pieces": lambda: norm_pattern(keep=1),
    "gain of two axes": lambda: wide_gain((1, 8)),
    "gain of three axes": lambda: wide_gain((1, 1, 8)),
    "int8, one row": lambda: quantised_rows(alone=True),
    "int8, a row beside a larger one": lambda: quantised_rows(alone=False),
    "empty past": lambda: empty_past(np.float32),
    "empty past in half": lambda: empty_past(HALF),
    "angles in half": lambda: angles(HALF, 3000),
    "angles in single": lambda: angles(np.float32, 3000),
    "slopes of 12 heads": lambda: slopes(True),
    "plain slopes of 12 heads": lambda: slopes(False),
    "a fill beyond half": lambda: half_fill(-1e9),
    "a fill within half": lambda: half_fill(-1e4),
    "a constant clipped": lambda: clipped(10000),
    "a constant kept": lambda: clipped(30000),
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
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_judged_as_its_kind(judge: Judge, name: str) -> None:
    proto, inputs, expected, verdict = VARIANTS[name]()
    found = judge(proto, inputs, expected, runtimes=None)
    assert found.verdict == verdict, "\n".join(found.lines())
