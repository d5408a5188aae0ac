"""From a comparison to text: a page, Markdown for a comment, rows for a spreadsheet, one JSON document."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from .. import html, markdown
from ..data import finite, inert
from .change import Change
from .comparison import Comparison
from .overall import Overall
from .view import document
from .words import answer, names

SCHEMA = 1
COLUMNS = (
    *("model", "size", "phase", "dtype", "runtime", "batch", "seq", "past"),
    *("base_ms", "head_ms", "ratio", "ratio_low", "ratio_high", "verdict", "rank_p", "p"),
)


def to_html(comparison: Comparison) -> str:
    """A page of its own, with the numbers of both runs."""
    return html.render(document(comparison))


def to_markdown(comparison: Comparison) -> str:
    """A comment: the answer, what changed, and the rest folded."""
    return markdown.render(document(comparison, charts=False), "compare.html")


def to_csv(comparison: Comparison) -> str:
    """One row a case that both runs timed; `ratio` is head time / base time with its 95 % interval."""
    rows = [{key: inert(value) for key, value in row(change).items()} for change in comparison.changes]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return str(frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def to_json(comparison: Comparison) -> str:
    """One JSON document; null where no number is."""
    content = {
        "schema": SCHEMA,
        "runs": names(comparison.runs),
        "regressed": comparison.regressed,
        "answer": answer(comparison),
        "limit": comparison.limit,
        "noise": asdict(comparison.noise),
        "runtimes": [_overall(found) for found in comparison.overall],
        "cases": [row(change) for change in comparison.changes],
        "not_compared": [{**asdict(f.case), "what": f.word, "reason": f.reason} for f in comparison.fates],
        "checks": [asdict(answer) for answer in comparison.answers],
        "errors": [asdict(error) for error in comparison.errors],
        "environment": [asdict(difference) for difference in comparison.differences],
        "trends": [asdict(trend) for trend in comparison.trends],
        "problems": [f"{run.folder}: {problem}" for run in comparison.runs for problem in run.problems],
    }
    return json.dumps(finite(content), indent=1, allow_nan=False) + "\n"


def _overall(found: Overall) -> dict[str, Any]:
    ends = {"ratio_low": found.interval.low, "ratio_high": found.interval.high}
    return {
        "runtime": found.runtime,
        "cases": len(found.cases),
        "ratio": found.ratio,
        **ends,
        "p": found.p,
        "verdict": found.word,
    }


FORMATS: Mapping[str, Callable[[Comparison], str]] = {
    "html": to_html,
    "md": to_markdown,
    "csv": to_csv,
    "json": to_json,
}


def row(change: Change) -> dict[str, Any]:
    """One case by the columns of the CSV."""
    return {
        **asdict(change.case),
        "base_ms": change.base_ns / 1e6,
        "head_ms": change.head_ns / 1e6,
        "ratio": change.ratio,
        "ratio_low": change.interval.low,
        "ratio_high": change.interval.high,
        "verdict": change.word,
        "rank_p": change.rank_p,
        "p": change.p,
    }
