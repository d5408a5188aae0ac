"""Masks, the Attention operator and positions: right and faulty graphs, and NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from .graphs import Array, Shape, attention, hidden, model, node, softmax
from .variants import HALF, Variant, build, normal, shaped


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
    "empty past": lambda: empty_past(np.float32),
    "empty past in half": lambda: empty_past(HALF),
    "angles in half": lambda: angles(HALF, 3000),
    "angles in single": lambda: angles(np.float32, 3000),
    "slopes of 12 heads": lambda: slopes(True),
    "plain slopes of 12 heads": lambda: slopes(False),
}
