"""Faults of the kinds that public issue trackers report, each beside the right graph, and NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from scipy import special

from .graphs import Array, Shape, attention, hidden, model, node, softmax

RNG = np.random.default_rng(0)
HEADS, N, HEAD = 6, 9, 8
QKV: Shape = ["batch", HEADS, "n", HEAD]
Q, K, V = (RNG.standard_normal((2, HEADS, N, HEAD)).astype(np.float32) for _ in range(3))
LOWER = np.tri(N, dtype=bool)


@dataclass
class Pair:
    """Right and faulty graphs of one function, the inputs, and what they should give."""

    right: onnx.ModelProto
    faulty: onnx.ModelProto
    inputs: dict[str, Array]
    expected: dict[str, Array]


def attend(*before: onnx.NodeProto, bias: str = "bias", more: Any = None, **constants: Any) -> onnx.ModelProto:
    """y = softmax(q·kᵀ/√d + bias)·v in pieces; `before` makes the bias, from the inputs `more` if need be."""
    nodes = [
        *before,
        node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q kt", "s"),
        node("Mul", "s scale", "scaled"),
        node("Add", f"scaled {bias}", "masked"),
        node("Softmax", "masked", "p", axis=-1),
        node("MatMul", "p v", "y"),
    ]
    inputs = dict.fromkeys("qkv", ("float32", QKV)) | (more or {})
    constants.setdefault("scale", np.float32(HEAD**-0.5))
    return model(nodes, inputs, {"y": ("float32", QKV)}, constants)


def alibi_slopes() -> Pair:
    """Press et al. 2022 for 6 heads: those of 4, then every other one of 8; the plain series is wrong."""
    published = [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    plain = [2.0 ** (-8 * (i + 1) / HEADS) for i in range(HEADS)]
    distance = np.arange(N)[None, :] - np.arange(N)[:, None]
    right, faulty = (
        attend(bias="slope", slope=(np.array(slopes)[:, None, None] * distance + hidden(LOWER)).astype(np.float32))
        for slopes in (published, plain)
    )
    truth = attention(Q, K, V, np.array(published)[:, None, None] * distance + hidden(LOWER))
    return Pair(right, faulty, {"q": Q, "k": K, "v": V}, {"y": truth})


def rotary(base: float = 10000.0, *, shift: int = 0, half: bool = False, interleaved: int = 0) -> onnx.ModelProto:
    """RotaryEmbedding with tables of 2048 positions."""
    angles = (np.arange(2048) + shift)[:, None] * base ** (-np.arange(0, HEAD, 2) / HEAD)
    if half:  # the product of two halves, rounded
        frequencies = (base ** (-np.arange(0, HEAD, 2) / HEAD)).astype(np.float16)
        angles = ((np.arange(2048)).astype(np.float16)[:, None] * frequencies).astype(float)
    tables = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    inputs = {"q": ("float32", QKV), "positions": ("int64", ["batch", "n"])}
    nodes = [node("RotaryEmbedding", "q cos sin positions", "y", interleaved=interleaved)]
    return model(nodes, inputs, {"y": ("float32", QKV)}, tables, opset=23)


def rotation(faulty: onnx.ModelProto, start: int = 0) -> Pair:
    """Su et al. 2021, halves of a head as pairs, base 10⁴."""
    positions = start + np.arange(N)
    angles = positions[:, None] * 10000.0 ** (-np.arange(0, HEAD, 2) / HEAD)
    a, b = np.split(Q.astype(float), 2, -1)
    y = np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)
    return Pair(rotary(), faulty, {"q": Q, "positions": np.tile(positions, (2, 1))}, {"y": y})


def mask_dropped() -> Pair:
    """The mask is an input that the faulty graph takes and forgets."""
    make = [node("Where", "mask zero low", "bias")]
    forget = [
        node("Where", "mask zero low", "unused"),
        node("Mul", "unused zero", "none"),
        node("Add", "none zero", "bias"),
    ]
    more = {"mask": ("bool", ["batch", 1, 1, "n"])}
    constants = {"zero": np.float32(0), "low": np.float32(-1e9)}
    mask = np.ones((2, 1, 1, N), bool)
    mask[1, ..., :3] = False
    truth = attention(Q, K, V, hidden(mask))
    graphs = [attend(*nodes, more=more, **constants) for nodes in (make, forget)]
    return Pair(*graphs, {"q": Q, "k": K, "v": V, "mask": mask}, {"y": truth})


def cross_mask_of_first_row() -> Pair:
    """Every row is given the source mask of the first one."""
    make = [node("Where", "mask zero low", "bias")]
    first = [node("Slice", "mask begin end begin", "one"), node("Where", "one zero low", "bias")]
    more = {"mask": ("bool", ["batch", 1, 1, "n"])}
    constants = {"zero": np.float32(0), "low": np.float32(-1e9)}
    mask = np.ones((2, 1, 1, N), bool)
    mask[1, ..., 5:] = False
    graphs = [
        attend(*make, more=more, **constants),
        attend(*first, more=more, **constants, begin=np.array([0]), end=np.array([1])),
    ]
    return Pair(graphs[0], graphs[1], {"q": Q, "k": K, "v": V, "mask": mask}, {"y": attention(Q, K, V, hidden(mask))})


def fully_masked_row() -> Pair:
    """A row without a key is zero by torch's convention; a finite fill gives the mean of the values."""
    make = [node("Where", "mask zero low", "bias")]
    constants = {"zero": np.float32(0), "low": np.float32(-3.4e38)}
    faulty = attend(*make, more={"mask": ("bool", ["n", "n"])}, **constants)
    right = attend(*make, more={"mask": ("bool", ["n", "n"])}, **constants)
    right.graph.node[-1].input[0] = "kept"
    extra = [node("Cast", "mask", "f", to=1), node("Mul", "p f", "kept")]
    last = right.graph.node.pop()
    right.graph.node.extend([*extra, last])
    mask = LOWER.copy()
    mask[0] = False
    with np.errstate(invalid="ignore"):
        truth = np.nan_to_num(attention(Q, K, V, hidden(mask)), nan=0.0)
    return Pair(right, faulty, {"q": Q, "k": K, "v": V, "mask": mask}, {"y": truth})


def window(width: int) -> onnx.ModelProto:
    """Sliding-window attention over the last `width` keys, by arithmetic on positions."""
    make = [
        node("Shape", "q", "length", start=2, end=3), node("Squeeze", "length", "count"),
        node("Range", "first count step", "j"), node("Unsqueeze", "j last", "i"), node("Sub", "i j", "d"),
        node("GreaterOrEqual", "d first", "past"), node("Less", "d width", "near"), node("And", "past near", "mask"),
        node("Where", "mask zero low", "bias"),
    ]  # fmt: skip
    constants = {"first": np.array(0), "step": np.array(1), "last": np.array([1]), "width": np.array(width)}
    return attend(*make, **constants, zero=np.float32(0), low=np.float32(-np.inf))


def window_off_by_one() -> Pair:
    distance = np.arange(N)[:, None] - np.arange(N)
    truth = attention(Q, K, V, hidden((distance >= 0) & (distance < 4)))
    return Pair(window(4), window(5), {"q": Q, "k": K, "v": V}, {"y": truth})


def grouped(*, tiled: bool) -> onnx.ModelProto:
    """Two key heads for six query heads: head h reads key head h div 3; tiled, it reads h mod 2."""
    spread = (
        [node("Tile", f"{x} reps", f"{x}6") for x in "kv"]
        if tiled
        else [node("Gather", f"{x} heads", f"{x}6", axis=1) for x in "kv"]
    )
    nodes = [*spread, node("Attention", "q k6 v6", "y")]
    few: Shape = ["batch", 2, "n", HEAD]
    inputs = {"q": ("float32", QKV), "k": ("float32", few), "v": ("float32", few)}
    constants: dict[str, Array] = {"reps": np.array([1, 3, 1, 1])} if tiled else {"heads": np.arange(6) // 3}
    return model(nodes, inputs, {"y": ("float32", QKV)}, constants, opset=23)


def groups() -> Pair:
    truth = attention(Q, np.repeat(K[:, :2], 3, 1), np.repeat(V[:, :2], 3, 1))
    return Pair(grouped(tiled=False), grouped(tiled=True), {"q": Q, "k": K[:, :2], "v": V[:, :2]}, {"y": truth})


def normed(op: str, epsilon: float) -> onnx.ModelProto:
    gain = {"g": np.linspace(0.5, 1.5, HEAD).astype(np.float32)}
    shape = ("float32", QKV)
    return model([node(op, "q g", "y", epsilon=epsilon, axis=-1)], {"q": shape}, {"y": shape}, gain, opset=23)


def norm(faulty: onnx.ModelProto) -> Pair:
    """LayerNorm of small values, ε = 1e-5."""
    small = (0.02 * Q).astype(np.float32)
    x = small.astype(float)
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * np.linspace(0.5, 1.5, HEAD)
    return Pair(normed("LayerNormalization", 1e-5), faulty, {"q": small}, {"y": y})


def gelu() -> Pair:
    """x·Φ(x) by erf; the tanh approximation is off by up to 5e-4 where x is near 2."""
    shape = ("float32", QKV)
    right, faulty = (
        model([node("Gelu", "q", "y", approximate=kind)], {"q": shape}, {"y": shape}, opset=20)
        for kind in ("none", "tanh")
    )
    x = Q.astype(float)
    return Pair(right, faulty, {"q": Q}, {"y": x / 2 * (1 + special.erf(x / np.sqrt(2)))})


def softmax_axis() -> Pair:
    shape = ("float32", [2, "n", "n"])
    right, faulty = (model([node("Softmax", "x", "y", axis=axis)], {"x": shape}, {"y": shape}) for axis in (-1, 1))
    x = RNG.standard_normal((2, N, N)).astype(np.float32)
    return Pair(right, faulty, {"x": x}, {"y": softmax(x.astype(float))})


def cached(*, stale: bool) -> onnx.ModelProto:
    """One step: the new key joins the past; a stale cache leaves it out of the attention."""
    nodes = [
        node("Concat", "past_k k", "present_k", axis=2), node("Concat", "past_v v", "present_v", axis=2),
        node("Attention", "q past_k past_v" if stale else "q present_k present_v", "y"),
    ]  # fmt: skip
    one, past, grown = (["batch", HEADS, n, HEAD] for n in (1, "past", "past + 1"))
    inputs: dict[str, Any] = dict.fromkeys("qkv", ("float32", one)) | {f"past_{x}": ("float32", past) for x in "kv"}
    outputs = {"y": ("float32", one), "present_k": ("float32", grown), "present_v": ("float32", grown)}
    return model(nodes, inputs, outputs, opset=23)


def stale_cache() -> Pair:
    feeds = {"q": Q[:, :, -1:], "k": K[:, :, -1:], "v": V[:, :, -1:], "past_k": K[:, :, :-1], "past_v": V[:, :, :-1]}
    truth = attention(Q, K, V)[:, :, -1:]
    return Pair(cached(stale=False), cached(stale=True), feeds, {"y": truth, "present_k": K, "present_v": V})


def anchored() -> Pair:
    """Three queries at the end of nine keys: a causal operator without a past starts at the first key."""
    few: Shape = ["batch", HEADS, "m", HEAD]
    inputs = {"q": ("float32", few), "k": ("float32", QKV), "v": ("float32", QKV)}
    low = hidden(LOWER[-3:]).astype(np.float32)
    right = model([node("Attention", "q k v bias", "y")], inputs, {"y": ("float32", few)}, {"bias": low}, opset=23)
    faulty = model([node("Attention", "q k v", "y", is_causal=1)], inputs, {"y": ("float32", few)}, opset=23)
    return Pair(right, faulty, {"q": Q[:, :, -3:], "k": K, "v": V}, {"y": attention(Q, K, V, hidden(LOWER))[:, :, -3:]})


PAIRS: dict[str, Callable[[], Pair]] = {
    "ALiBi slopes of the plain series": alibi_slopes,
    "RoPE base": lambda: rotation(rotary(500000.0)),
    "RoPE layout": lambda: rotation(rotary(interleaved=1)),
    "position off by one": lambda: rotation(rotary(shift=1)),
    "tables through float16": lambda: rotation(rotary(half=True), start=1000),
    "mask dropped": mask_dropped,
    "source mask of the first row": cross_mask_of_first_row,
    "fully masked row": fully_masked_row,
    "window off by one": window_off_by_one,
    "groups tiled": groups,
    "epsilon 1e-6": lambda: norm(normed("LayerNormalization", 1e-6)),
    "mean kept": lambda: norm(normed("RMSNormalization", 1e-5)),
    "tanh GELU": gelu,
    "softmax axis": softmax_axis,
    "stale cache": stale_cache,
    "causal mask anchored at the top left": anchored,
}
