"""A run's folder: `run.json`, the header, and `records.jsonl`, a record a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .records import SCHEMA, Measurement, Run, Verdict, from_line


class RunError(Exception):
    """A run folder that cannot be read at all; the message names the folder and the reason."""


def write_header(folder: Path, header: Mapping[str, Any]) -> None:
    """Write `run.json` whole or not at all."""
    part = folder / "run.json.part"
    part.write_text(json.dumps({"schema": SCHEMA, **header}, indent=1) + "\n")
    part.replace(folder / "run.json")


def read_run(folder: Path) -> Run:
    """Read a run folder; damaged lines are named in `problems`, the rest is kept.

    Raises:
        RunError: no such folder, no readable `run.json`, or one of a newer schema.
    """
    return read_records(folder, _read_header(folder))


def read_records(folder: Path, header: Mapping[str, Any]) -> Run:
    """The records of a folder under a header that was read elsewhere."""
    records = folder / "records.jsonl"
    measurements: list[Measurement] = []
    verdicts: list[Verdict] = []
    problems: list[str] = []
    if not records.exists():
        problems.append("records.jsonl is missing: the run ended before its first case")
    for number, line in _lines(records):
        try:
            record = from_line(line)
        except ValueError as error:
            problems.append(f"records.jsonl line {number}: {error}")
            continue
        if isinstance(record, Measurement):
            measurements.append(record)
        else:
            verdicts.append(record)
    return Run(
        folder=folder,
        header=header,
        measurements=tuple(measurements),
        verdicts=tuple(verdicts),
        problems=tuple(problems),
    )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    if path.exists():
        with path.open(errors="replace") as stream:
            yield from ((number, line) for number, line in enumerate(stream, 1) if line.strip())


def _read_header(folder: Path) -> Mapping[str, Any]:
    path = folder / "run.json"
    if not folder.is_dir():
        raise RunError(f"{folder}: no such run folder")
    if not path.is_file():
        raise RunError(f"{folder}: no run.json, so this is not a run folder")
    try:
        header = json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None
    schema = header.get("schema") if isinstance(header, dict) else None
    if not isinstance(schema, int):
        raise RunError(f"{path}: no schema number, so this is not a run's header")
    if schema > SCHEMA:
        raise RunError(f"{path}: schema {schema} is newer than the {SCHEMA} that this isorun reads; upgrade isorun")
    return header  # type: ignore[no-any-return]
