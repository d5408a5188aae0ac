"""pytest-benchmark's JSON as a run: its benchmarks become cases, its rounds become blocks. Standard library only."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from .records import Case, Measurement, OutputError, Run
from .runfolder import RunError

FORMAT = "pytest-benchmark"  # `header["format"]` of a run that was read from such a file: its outputs are unchecked
ERRORS = "isorun_errors"  # and the key of the distances of its outputs from float64 truth, where it has checked them
CASE = "isorun"  # the key of `extra_info` under which a benchmark may name its case, field by field
BLOCKS = 10  # rounds that follow each other are correlated: they are cut into so many blocks, as batch means are
_FIELDS: Mapping[str, type] = {field.name: int if field.type == "int" else str for field in fields(Case)}


def read(path: Path) -> Run:
    """The run in a file of `pytest --benchmark-json`; a benchmark that cannot be read is named in `problems`.

    A benchmark whose `extra_info` names its case is that case; any other is the case of the model `fullname` with empty
    fields besides. Without `--benchmark-save-data` a file holds no samples: the median is then one block, which has no
    interval. Times are per iteration, in nanoseconds.

    Raises:
        RunError: no such file, or not JSON of pytest-benchmark.
    """
    content = _load(path)
    measurements, problems = [], []
    for number, benchmark in enumerate(content["benchmarks"], 1):
        try:
            measurements.append(_measurement(benchmark))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            problems.append(f"{path.name}: benchmark {number}: {error!r}")
    header = {"format": FORMAT, "name": path.stem, "created": content.get("datetime"), **_where(content)}
    return Run(folder=path, header=header, measurements=tuple(measurements), problems=tuple(problems))


def _load(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path}: no such file") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("benchmarks"), list):
        raise RunError(f"{path}: no list of benchmarks, so this is not JSON of pytest-benchmark")
    return content


def _measurement(benchmark: Mapping[str, Any]) -> Measurement:
    """One benchmark.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, OverflowError: a part is missing or not what it should be.
    """
    stats = benchmark["stats"]
    samples = stats.get("data") or [stats["median"]]
    times = [round(float(sample) * 1e9) for sample in samples]  # pytest-benchmark has divided them by the iterations
    if not all(0 < time < math.inf for time in times):
        raise ValueError("a time is not positive")
    errors = tuple(OutputError(**error) for error in benchmark.get("extra_info", {}).get(ERRORS, ()))
    return Measurement(case=_case(benchmark), status="ok", blocks_ns=_blocks(times), errors=errors)


def _case(benchmark: Mapping[str, Any]) -> Case:
    named = benchmark.get("extra_info", {}).get(CASE)
    if named is not None:
        return Case(**{name: kind(named[name]) for name, kind in _FIELDS.items()})
    return Case(model=str(benchmark["fullname"]), size="", phase="", dtype="", runtime="", batch=1, seq=0, past=0)


def _blocks(times: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Runs of neighbours, as equal in length as can be."""
    count = min(BLOCKS, len(times))
    ends = [len(times) * part // count for part in range(count + 1)]
    return tuple(tuple(times[start:end]) for start, end in pairwise(ends))


def _where(content: Mapping[str, Any]) -> dict[str, Any]:
    """The environment as `isorun bench` records it, of what pytest-benchmark notes of the machine."""
    machine = content.get("machine_info")
    machine = machine if isinstance(machine, Mapping) else {}
    cpu = machine.get("cpu")
    cpu = cpu if isinstance(cpu, Mapping) else {}
    facts = {
        "processor": cpu.get("brand_raw") or machine.get("processor") or machine.get("machine"),
        "cores": cpu.get("count"),
        "os": f"{machine.get('system', '')} {machine.get('release', '')}".strip(),
        "python": machine.get("python_version"),
    }
    return {"environment": {key: value for key, value in facts.items() if value}}
