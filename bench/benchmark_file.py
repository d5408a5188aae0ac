"""A run in the format of pytest-benchmark, so that `pytest-benchmark compare` and the services that read it can.

Each case that has a time is a benchmark, each timed call a round of one iteration; runtimes of one case form a group.
The case and the check of its outputs stand in `extra_info`, where `interchange.read` finds them again.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, median, stdev
from typing import Any

from .interchange import CASE, ERRORS
from .records import Measurement, Run

VERSION = "5.1.0"  # of pytest-benchmark, whose form this is
OPTIONS = {
    "disable_gc": False,
    "timer": "perf_counter_ns",
    "min_rounds": 5,
    "max_time": 1.0,
    "min_time": 0.0,
    "warmup": True,
}


def write(run: Run) -> str:
    """The run as one JSON document."""
    environment = run.environment
    document = {
        "machine_info": {
            "node": "",
            "processor": environment.get("processor", ""),
            "machine": platform.machine(),
            "python_version": environment.get("python", ""),
            "system": environment.get("os", ""),
            "release": "",
            "cpu": {"brand_raw": environment.get("processor", ""), "count": environment.get("cores")},
        },
        "commit_info": {"id": "unknown", "time": None, "dirty": False, "project": "isorun"},
        "benchmarks": [_benchmark(m) for m in run.measurements if m.status == "ok" and m.median_ns],
        "datetime": run.header.get("created"),
        "version": VERSION,
    }
    return json.dumps(document, indent=1) + "\n"


def _benchmark(m: Measurement) -> dict[str, Any]:
    case = m.case
    group = f"{case.model}@{case.size} {case.phase} {case.dtype} batch {case.batch} n = {case.length}"
    name = f"{group} [{case.runtime}]"
    return {
        "group": group,
        "name": name,
        "fullname": f"isorun::{name}",
        "params": {"runtime": case.runtime, "n": case.length},
        "param": f"{case.runtime}-{case.length}",
        "extra_info": {CASE: asdict(case), ERRORS: [asdict(error) for error in m.errors]},
        "options": OPTIONS,
        "stats": stats([ns / 1e9 for block in m.blocks_ns for ns in block]),
    }


def stats(seconds: Sequence[float]) -> dict[str, Any]:
    """The statistics that pytest-benchmark keeps of its rounds, as it defines them."""
    data = sorted(seconds)
    middle, spread = fmean(data), stdev(data) if len(data) > 1 else 0.0
    q1, q3 = _quartiles(data)
    low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    far = sum(value < low or value > high for value in data)
    deviant = sum(abs(value - middle) > spread for value in data)
    return {
        "min": data[0],
        "max": data[-1],
        "mean": middle,
        "stddev": spread,
        "rounds": len(data),
        "median": median(data),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": far,
        "stddev_outliers": deviant,
        "outliers": f"{deviant};{far}",
        "ld15iqr": next(value for value in data if value >= low),
        "hd15iqr": next(value for value in reversed(data) if value <= high),
        "ops": 1 / middle,
        "total": sum(data),
        "data": list(seconds),
        "iterations": 1,
    }


def _quartiles(data: Sequence[float]) -> tuple[float, float]:
    """The medians of both halves; of an odd number the mean of what they are with and without the middle value."""
    short, long = len(data) // 2, (len(data) + 1) // 2
    short = short or long
    lower = (median(data[:short]) + median(data[:long])) / 2
    upper = (median(data[-short:]) + median(data[-long:])) / 2
    return lower, upper
