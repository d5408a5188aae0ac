"""A run as data: one row a measurement (CSV, Parquet; see `columns`), and one JSON document (see `schema`).

A time whose outputs were not verified is left out.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from ..bench.growth import Growth
from ..bench.records import Measurement, Run
from ..bench.timing import median_interval
from .answers import cards
from .columns import COLUMNS, NAMES
from .document import Card
from .series import Group, distance, groups, growth, untimed, worst
from .sparse import reading
from .trend import explained

JSON_SCHEMA = 1
KINDS = ("weights", "cache", "arena", "activations")  # of memory
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what makes a spreadsheet compute a cell that begins with it


class ReportError(Exception):
    """A report that cannot be made here; the message says what is missing."""


def to_csv(run: Run) -> str:
    """The measurements as comma-separated values; text that a spreadsheet would compute begins with an apostrophe."""
    rows = [{key: inert(value) for key, value in row(m).items()} for m in run.measurements]
    frame = pd.DataFrame(rows, columns=list(NAMES)).astype(_whole())
    return str(frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def to_parquet(run: Run) -> bytes:
    """The measurements as Parquet; each field says its unit and meaning in its metadata.

    Raises:
        ReportError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ReportError("Parquet needs pyarrow: install the extra, pip install 'isorun[parquet]'") from None
    kinds = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64()}
    fields = [
        pa.field(column.name, kinds[column.kind], metadata={"unit": column.unit, "meaning": column.text})
        for column in COLUMNS
    ]
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([_encodable(row(m)) for m in run.measurements], pa.schema(fields)), stream)
    return stream.getvalue()


def to_json(run: Run) -> str:
    """One JSON document: header, answers, the rows of the CSV, laws, verdicts, problems; null where no number is."""
    content = {
        "schema": JSON_SCHEMA,
        "header": dict(run.header),
        "answers": [answer for card in cards(run) for answer in _said(card)],
        "measurements": [row(m) for m in run.measurements],
        "laws": _laws(run),
        "verdicts": [asdict(verdict) for verdict in run.verdicts],
        "problems": list(run.problems),
    }
    return json.dumps(finite(content), indent=1, allow_nan=False) + "\n"


def _said(card: Card) -> list[dict[str, str]]:
    return [
        {
            "model": card.title,
            "question": answer.question,
            "about": line.label,
            "answer": line.head,
            "detail": line.detail,
            "tone": line.tone,
        }
        for answer in card.answers
        for line in answer.lines
    ]


def _laws(run: Run) -> list[dict[str, Any]]:
    """The fitted law of each line; times in nanoseconds, intervals as [low, high]."""
    found = []
    for group in groups(run):
        about = {key: getattr(group, key) for key in ("model", "size", "phase", "dtype", "batch")}
        for runtime in group.lines:
            law = growth(group, runtime)
            if law is not None:
                reason = explained(group, runtime, law)
                found.append(
                    {**about, "runtime": runtime, **_law(law), "reason": reason, **_sparse(run, group, runtime)}
                )
    return found


def _law(law: Growth) -> dict[str, Any]:
    fit = law.fit
    names = ("c0_ns", "c1_ns", "c2_ns")
    return {
        **dict(zip(names, fit.coefficients, strict=True)),
        **{f"{name}_interval": [end.low, end.high] for name, end in zip(names, fit.intervals, strict=True)},
        "exponent": law.exponent,
        "exponent_interval": [law.interval.low, law.interval.high],
        "exponent_from_n": law.low,
        "exponent_to_n": law.high,
        "exponent_over_all_n": fit.exponent,
        "theory_exponent": law.theory,
        "verdict": law.word,
    }


def _sparse(run: Run, group: Group, runtime: str) -> dict[str, Any]:
    found = reading(run, group, runtime)
    return {
        "reads": found.reads if found else None,
        "full_attention_exponent": found.dense if found else None,
        "growth_of": found.word if found else None,
    }


def row(m: Measurement) -> dict[str, Any]:
    """One measurement by its columns; None for what is not known or must not be shown."""
    case, error, placed = asdict(m.case), worst(m), m.placement
    return {
        **case,
        "status": m.status,
        "reason": untimed(m),
        **_times(m),
        "stopped": m.stopped,
        "prepare_s": m.prepare_s,
        "peak_bytes": m.peak_bytes,
        "flops": m.flops,
        "dense_flops": m.dense_flops,
        "graph_flops": m.graph_flops,
        "graph_bytes": m.graph_bytes,
        "expected_ms": m.expected_ns / 1e6 if m.expected_ns else None,
        **{f"{kind}_bytes": (m.memory or {}).get(kind) for kind in KINDS},
        "worst_error_ratio": None if error is None else distance(error),
        "provider": placed.provider if placed else None,
        "precision": placed.precision if placed else None,
        "threads": placed.threads if placed else None,
    }


def _times(m: Measurement) -> dict[str, Any]:
    """What follows from the samples; nothing when there are none or their outputs were not verified."""
    ns = m.median_ns
    if not ns or untimed(m):
        return dict.fromkeys(
            ("median_ms", "low_ms", "high_ms", "twin_ratio", "blocks", "calls", "tokens_per_s", "gflops_per_s")
        )
    interval = median_interval(m.block_medians_ns)
    return {
        "median_ms": ns / 1e6,
        "low_ms": interval.low / 1e6,
        "high_ms": interval.high / 1e6,
        "twin_ratio": m.twin_median_ns / ns if m.twin_median_ns > 0 else None,
        "blocks": len(m.block_medians_ns),
        "calls": sum(map(len, m.blocks_ns)),
        "tokens_per_s": m.case.batch * m.case.seq / ns * 1e9,
        "gflops_per_s": m.flops / ns if m.flops else None,
    }


def _whole() -> dict[str, str]:
    return {column.name: "Int64" for column in COLUMNS if column.kind == "integer"}


def _encodable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Text that UTF-8 can hold."""
    return {
        key: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for key, value in values.items()
    }


def inert(value: Any) -> Any:
    """The same value for a cell of a spreadsheet: text that it would compute begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def finite(value: Any) -> Any:
    """The same value for strict JSON: what is not a finite number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
