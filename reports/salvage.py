"""Reading a run for a report: when the header is lost, what was measured is still told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from ..bench import interchange
from ..bench.records import Run
from ..bench.runfolder import RunError, read_records, read_run


def read(folder: Path) -> Run:
    """A run folder as it is; one with records but no readable header has an empty one, and the problem said.

    A file is one of pytest-benchmark.

    Raises:
        RunError: no such folder, nothing in it to read, or a newer schema.
    """
    if folder.is_file():
        return interchange.read(folder)
    try:
        return read_run(folder)
    except RunError as error:
        if not (folder / "records.jsonl").is_file() or _has_schema(folder / "run.json"):
            raise
        found = read_records(folder, {})
        return replace(found, problems=(str(error), *found.problems))


def _has_schema(path: Path) -> bool:
    """Whether the header says which schema it is of; then it was refused for that."""
    try:
        header = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(header, dict) and isinstance(header.get("schema"), int)
