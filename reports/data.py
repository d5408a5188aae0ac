"""A run as data: `measurements.csv`, one row a measurement, and one JSON document.

Columns, with their units in their names: `model`, `size`, `phase`, `dtype`, `runtime`, `batch`, `seq` (new tokens of a
call), `past` (cached tokens before them), `status` (ok, skipped, failed) and the `reason` why there is no time;
`median_ms` of a call with its interval `low_ms` to `high_ms`, from `blocks` blocks with `calls` calls in all;
`tokens_per_s` (new tokens), `prepare_s` (loading the model), `peak_bytes` (resident memory of the process), `flops` of
a call and `gflops_per_s`; `worst_error_ratio` (error against float64 in units of torch's own rounding); `provider`,
`precision` and `threads` of the session. A time whose outputs were not verified is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from ..bench.records import Measurement, Run
from ..bench.timing import median_interval
from .series import distance, untimed, worst

COLUMNS = (
    *("model", "size", "phase", "dtype", "runtime", "batch", "seq", "past", "status", "reason"),
    *("median_ms", "low_ms", "high_ms", "blocks", "calls", "tokens_per_s", "prepare_s", "peak_bytes"),
    *("flops", "gflops_per_s", "worst_error_ratio", "provider", "precision", "threads"),
)
_INTEGERS = ("batch", "seq", "past", "blocks", "calls", "peak_bytes", "flops", "threads")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what makes a spreadsheet compute a cell that begins with it


def to_csv(run: Run) -> str:
    """The measurements as comma-separated values; text that a spreadsheet would compute begins with an apostrophe."""
    rows = [{key: _inert(value) for key, value in row(m).items()} for m in run.measurements]
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(_INTEGERS, "Int64"))
    return str(frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def to_json(run: Run) -> str:
    """One JSON document: the header, the rows of the CSV, the verdicts and the problems; null where no number is."""
    content = {
        "header": dict(run.header),
        "measurements": [row(m) for m in run.measurements],
        "verdicts": [asdict(verdict) for verdict in run.verdicts],
        "problems": list(run.problems),
    }
    return json.dumps(finite(content), indent=1, allow_nan=False) + "\n"


def row(m: Measurement) -> dict[str, Any]:
    """One measurement by the columns above; None for what is not known or must not be shown."""
    case, error, placed = asdict(m.case), worst(m), m.placement
    return {
        **case,
        "status": m.status,
        "reason": untimed(m),
        **_times(m),
        "prepare_s": m.prepare_s,
        "peak_bytes": m.peak_bytes,
        "flops": m.flops,
        "worst_error_ratio": None if error is None else distance(error),
        "provider": placed.provider if placed else None,
        "precision": placed.precision if placed else None,
        "threads": placed.threads if placed else None,
    }


def _times(m: Measurement) -> dict[str, Any]:
    """What follows from the samples; nothing when there are none or their outputs were not verified."""
    ns = m.median_ns
    if not ns or untimed(m):
        return dict.fromkeys(("median_ms", "low_ms", "high_ms", "blocks", "calls", "tokens_per_s", "gflops_per_s"))
    interval = median_interval(m.block_medians_ns)
    return {
        "median_ms": ns / 1e6,
        "low_ms": interval.low / 1e6,
        "high_ms": interval.high / 1e6,
        "blocks": len(m.block_medians_ns),
        "calls": sum(map(len, m.blocks_ns)),
        "tokens_per_s": m.case.batch * m.case.seq / ns * 1e9,
        "gflops_per_s": m.flops / ns if m.flops else None,
    }


def _inert(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def finite(value: Any) -> Any:
    """The same value for strict JSON: what is not a finite number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
