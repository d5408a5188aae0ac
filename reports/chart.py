"""The one kind of chart of a report: points with interval bars and curves on two logarithmic axes (Vega-Lite)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import altair as alt

from .document import Chart

COLOURS = ("#3f7fd1", "#dd7a2c", "#2f9e77", "#a765c2", "#c9506b", "#8c8a2e")  # all seen on white and on near-black
DASHES = {"fitted": [1, 0], "FLOPs": [2, 4]}  # by kind of curve


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


def loglog(caption: str, axes: Axes, points: Sequence[Point], nodes: Sequence[Node], order: Sequence[str]) -> Chart:
    """Points over curves; a series keeps its colour and mark in every chart drawn with the same `order`."""
    used = [name for name in order if any(point.series == name for point in points)]
    colour = alt.Color(
        field="series",
        type="nominal",
        title=None,
        scale=alt.Scale(domain=used, range=[COLOURS[order.index(name) % len(COLOURS)] for name in used]),
    )
    x, y = _axes(axes)
    measured = alt.Chart(alt.InlineData(values=[asdict(point) for point in points]))
    bars = measured.mark_rule(strokeWidth=2).encode(x, alt.Y(field="low", type="quantitative"), colour, y2="high")
    shape = alt.Shape(field="series", type="nominal", title=None, scale=alt.Scale(domain=used))
    tip = [alt.Tooltip(field="series", type="nominal"), alt.Tooltip(field="x", type="quantitative", title="n")]
    tip.append(alt.Tooltip(field="text", type="nominal", title="time"))
    dots = measured.mark_point(filled=True, size=60, opacity=1).encode(x, y, colour, shape, tooltip=tip)
    layers = alt.layer(*([_curves(nodes, x, y, colour)] if nodes else []), bars, dots)
    described = f"{axes.y} against {axes.x}: {caption}"
    return Chart(caption, _spec(layers.properties(width="container", height=220, description=described)))


def _axes(axes: Axes) -> tuple[alt.X, alt.Y]:
    x = alt.X(
        field="x",
        type="quantitative",
        title=axes.x,
        scale=alt.Scale(type="log", base=2, nice=False, padding=14),
        axis=alt.Axis(values=list(axes.ticks), format="d", grid=False),
    )
    log = alt.Scale(type="log", nice=False, padding=10)
    return x, alt.Y(field="y", type="quantitative", title=axes.y, scale=log, axis=alt.Axis(tickCount=5))


def _curves(nodes: Sequence[Node], x: alt.X, y: alt.Y, colour: alt.Color) -> alt.Chart:
    kinds = [kind for kind in DASHES if any(node.curve == kind for node in nodes)]
    dashes = alt.Scale(domain=kinds, range=[DASHES[kind] for kind in kinds])
    dash = alt.StrokeDash(field="curve", type="nominal", title=None, scale=dashes)
    drawn = alt.Chart(alt.InlineData(values=[asdict(node) for node in nodes]))
    lines: alt.Chart = drawn.mark_line(strokeWidth=1.5).encode(x, y, colour, dash)
    return lines


def _spec(chart: alt.LayerChart | alt.FacetChart) -> dict[str, object]:
    """The specification without altair's theme and without the schema's network address: the page brings its own."""
    spec = chart.to_dict()
    return {key: value for key, value in spec.items() if key not in ("$schema", "config")}
