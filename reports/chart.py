"""The charts of a report as Vega-Lite 6 specifications: points and curves on logarithmic axes, and stacked bars.

They are written as plain data: building them through a library costs a third of a second each. Every chart of series
has a parameter `hidden`, the names of those that a reader has put away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .document import Chart

COLOURS = ("#3f7fd1", "#dd7a2c", "#2f9e77", "#a765c2", "#c9506b", "#8c8a2e")  # all seen on white and on near-black
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
GLYPHS = "●■▲◆▼✚"  # the same, for text
DASHES = {"fitted": [1, 0], "theory": [2, 4]}  # by kind of curve
_SHOWN = [{"filter": "indexof(hidden, datum.series) < 0"}]
_Spec = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """A measured value with the ends of its interval, in the units of the axes."""

    series: str
    x: float
    y: float
    low: float
    high: float
    text: str


@dataclass(frozen=True)
class Node:
    """One corner of a curve; `curve` says what kind of curve it is, and is a key of `DASHES`."""

    series: str
    curve: str
    x: float
    y: float


@dataclass(frozen=True)
class Axes:
    """Titles and, along x, the values that get a tick."""

    x: str
    y: str
    ticks: Sequence[int]


@dataclass(frozen=True)
class Piece:
    """One piece of a stacked bar: the bar that it belongs to, its kind and its size in the unit of the axis."""

    bar: str
    kind: str
    size: float
    text: str


def colours(order: Sequence[str]) -> dict[str, str]:
    """The colour of each series, the same in every chart drawn with the same `order`."""
    return {name: COLOURS[rank % len(COLOURS)] for rank, name in enumerate(order)}


def loglog(
    caption: str,
    axes: Axes,
    points: Sequence[Point],
    nodes: Sequence[Node],
    order: Sequence[str],
    group: int | None = None,
) -> Chart:
    """Points over curves; a series keeps its colour and mark in every chart drawn with the same `order`."""
    used = [name for name in order if any(point.series == name for point in points)]
    colour = _scaled("series", used, [colours(order)[name] for name in used])
    shape = _scaled("series", used, [SHAPES[order.index(name) % len(SHAPES)] for name in used])
    x, y = _axes(axes)
    tip = [_field("series", "nominal"), _field("x", "quantitative", title="n"), _field("text", "nominal", title="time")]
    bars = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour}
    dots = {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tip}
    measured = [
        {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": bars},
        {"mark": {"type": "point", "filled": True, "size": 60, "opacity": 1}, "encoding": dots},
    ]
    layers = [_curves(nodes, {"x": x, "y": y, "color": colour})] if nodes else []
    layers.append({"data": _values(points), "transform": _SHOWN, "layer": measured})
    spec = _sized(layers, f"{axes.y} against {axes.x}: {caption}", 220)
    return Chart(caption, {**spec, "params": [{"name": "hidden", "value": []}]}, group)


def stacked(
    caption: str, title: str, pieces: Sequence[Piece], marks: Mapping[str, float], group: int | None = None
) -> Chart:
    """Horizontal bars of pieces; `marks` has for a bar the value that was predicted for it."""
    bars = list(dict.fromkeys(piece.bar for piece in pieces))
    kinds = list(dict.fromkeys(piece.kind for piece in pieces))
    y = _field("bar", "nominal", title=None, sort=bars, axis={"labelLimit": 260})
    x = _field("size", "quantitative", title=title, stack="zero", axis={"tickCount": 5})
    colour = _scaled("kind", kinds, [COLOURS[rank % len(COLOURS)] for rank in range(len(kinds))])
    colour["legend"] = {"columns": 2}
    tip = [_field(name, "nominal") for name in ("bar", "kind", "text")]
    values = [{**asdict(piece), "rank": kinds.index(piece.kind)} for piece in pieces]
    encoding = {"x": x, "y": y, "color": colour, "order": _field("rank", "quantitative"), "tooltip": tip}
    layers: list[_Spec] = [
        {"data": {"values": values}, "mark": {"type": "bar", "height": {"band": 0.65}}, "encoding": encoding}
    ]
    if marks:
        predicted = [{"bar": bar, "size": size} for bar, size in marks.items()]
        tick = {"type": "tick", "thickness": 2, "height": {"band": 0.9}}
        place = {"x": _field("size", "quantitative"), "y": y}
        layers.append({"data": {"values": predicted}, "mark": tick, "encoding": place})
    return Chart(caption, _sized(layers, f"{title}: {caption}", 22 * len(bars) + 8), group)


def _curves(nodes: Sequence[Node], encoding: _Spec) -> _Spec:
    kinds = [kind for kind in DASHES if any(node.curve == kind for node in nodes)]
    dash = _scaled("curve", kinds, [DASHES[kind] for kind in kinds])
    mark = {"type": "line", "strokeWidth": 1.5}
    return {"data": _values(nodes), "transform": _SHOWN, "mark": mark, "encoding": {**encoding, "strokeDash": dash}}


def _axes(axes: Axes) -> tuple[_Spec, _Spec]:
    wide = {"type": "log", "base": 2, "nice": False, "padding": 14}
    ticks = {"values": list(axes.ticks), "format": "d", "grid": False}
    high = {"type": "log", "nice": False, "padding": 10}
    x = _field("x", "quantitative", title=axes.x, scale=wide, axis=ticks)
    return x, _field("y", "quantitative", title=axes.y, scale=high, axis={"tickCount": 5})


def _field(name: str, kind: str, **more: Any) -> _Spec:
    return {"field": name, "type": kind, **more}


def _scaled(name: str, domain: Sequence[str], values: Sequence[Any]) -> _Spec:
    return _field(name, "nominal", title=None, scale={"domain": list(domain), "range": list(values)})


def _values(items: Sequence[Point | Node]) -> _Spec:
    return {"values": [_rounded(item) for item in items]}


def _rounded(item: Point | Node) -> _Spec:
    """Four digits are finer than a pixel, and keep the page small."""
    return {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in vars(item).items()}


def _sized(layers: Sequence[_Spec], description: str, height: int) -> _Spec:
    return {"layer": list(layers), "width": "container", "height": height, "description": description}
