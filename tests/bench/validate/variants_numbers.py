"""Fusions, quantisation and half precision: right and faulty graphs, and NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .graphs import model, node, softmax
from .variants import HALF, Variant, build, normal, shaped


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


VARIANTS: dict[str, Callable[[], Variant]] = {
    "norm in pieces": lambda: norm_pattern(keep=1),
    "gain of two axes": lambda: wide_gain((1, 8)),
    "gain of three axes": lambda: wide_gain((1, 1, 8)),
    "int8, one row": lambda: quantised_rows(alone=True),
    "int8, a row beside a larger one": lambda: quantised_rows(alone=False),
    "a fill beyond half": lambda: half_fill(-1e9),
    "a fill within half": lambda: half_fill(-1e4),
    "a constant clipped": lambda: clipped(10000),
    "a constant kept": lambda: clipped(30000),
}
