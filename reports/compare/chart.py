"""The ratio of every case with its interval, in one picture."""

from __future__ import annotations

import altair as alt

from ..document import Chart
from .comparison import Comparison
from .words import change, titled, worded

_COLOURS = {"slower": "#c9506b", "faster": "#2f9e77", "same": "#8a8f98", "cannot tell": "#b98a2c"}
_CAPTION = "Time of the head over time of the base with its interval, case by case; left of 1 is faster"
_WIDEST = 4.0  # an interval that reaches further is cut off: it says nothing


def ratios(comparison: Comparison) -> Chart:
    """One line a case, in the order of the cases; colour and shape say the word."""
    rows = []
    for found in comparison.changes:
        case = found.case
        n = f"n = {case.length}" if case.seq else ""
        rows.append(
            {
                "case": ", ".join(filter(None, (*titled(case), case.runtime, n))),
                "ratio": found.ratio,
                "low": max(found.interval.low, 1 / _WIDEST),
                "high": min(found.interval.high, _WIDEST),
                "word": worded(found.word),
                "text": change(found),
            }
        )
    words = [worded(word) for word in _COLOURS]
    data = alt.Chart(alt.InlineData(values=rows))
    colour = alt.Color(
        field="word", type="nominal", title=None, scale=alt.Scale(domain=words, range=list(_COLOURS.values()))
    )
    shape = alt.Shape(field="word", type="nominal", title=None, scale=alt.Scale(domain=words))
    y = alt.Y(field="case", type="nominal", title=None, sort=None, axis=alt.Axis(labelLimit=340))
    tip = [alt.Tooltip(field=key, type="nominal") for key in ("case", "text", "word")]
    scale = alt.Scale(type="log", clamp=True, nice=False, padding=10)
    bars = data.mark_rule(strokeWidth=2).encode(
        alt.X(field="low", type="quantitative", title="head / base", scale=scale), y, colour, x2="high"
    )
    dots = data.mark_point(filled=True, size=50, opacity=1).encode(
        alt.X(field="ratio", type="quantitative"), y, colour, shape, tooltip=tip
    )
    one = alt.Chart(alt.InlineData(values=[{"x": 1}])).mark_rule(strokeDash=[4, 4])
    one = one.encode(alt.X(field="x", type="quantitative"))
    layers = alt.layer(one, bars, dots).properties(width="container", height=16 * len(rows) + 8, description=_CAPTION)
    return Chart(_CAPTION, {key: value for key, value in layers.to_dict().items() if key not in ("$schema", "config")})
