"""Records that outlive their process: written so that a kill loses none, and mended so that the run can go on."""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from .beside import Base
from .environment import describe
from .records import Case, Measurement, Run, Verdict, to_line
from .runfolder import RunError, read_run
from .suite import Suite, groups

# Times of two machines, or of two versions, do not belong into one run.
SAME = ("processor", "cores", "threads", "python", "versions", "base")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep every other process from measuring into a run folder; a process that dies gives it free.

    Raises:
        RunError: another one is at it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise RunError(f"{folder}: another isorun is measuring into this folder") from None
    finally:
        os.close(handle)


def append(file: Path, *records: Measurement | Verdict) -> None:
    """Add records that belong together and force them to disk, so that a killed run keeps them.

    Raises:
        OSError: the disk is full, say; the file is then what it was before.
    """
    data = "".join(to_line(record) + "\n" for record in records).encode()
    with file.open("ab", buffering=0) as stream:
        start = os.fstat(stream.fileno()).st_size
        try:
            while data:
                data = data[stream.write(data) :]
            os.fsync(stream.fileno())
        except OSError:
            os.ftruncate(stream.fileno(), start)
            raise


def suite_of(run: Run) -> Suite:
    """The suite that a run was started with.

    Raises:
        RunError: its header does not hold one that this isorun can read.
    """
    try:
        header: dict[str, Any] = dict(run.header["suite"])
        content: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in header.items()
        }
        suite = Suite(**content)
        groups(suite)
        return suite
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{run.folder}: the header names no suite that can be resumed: {error}") from None


def mend(folder: Path, runtimes: tuple[str, ...]) -> Run:
    """Read a run, and leave in its records only what a resumed run need not measure again.

    Taken out are a last line that was torn, cases that were left out for want of time, and the rows of a length that
    does not have one for each of `runtimes`: blocks pair in time, so a length is measured on all of them or not at all.

    Raises:
        RunError: the folder cannot be read.
    """
    run = read_run(folder)
    records = folder / "records.jsonl"
    torn = not records.exists() or not records.read_bytes().endswith(b"\n")
    rows: dict[Case, set[str]] = defaultdict(set)
    for m in run.measurements:
        if not left_out(m):
            rows[m.case.point].add(m.case.runtime)
    kept = [m for m in run.measurements if rows[m.case.point] >= set(runtimes)]
    if torn or run.problems or len(kept) < len(run.measurements):
        part = records.with_suffix(".part")
        with part.open("w") as stream:
            stream.writelines(f"{to_line(verdict)}\n" for verdict in run.verdicts)
            stream.writelines(f"{to_line(measurement)}\n" for measurement in kept)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(records)
    return replace(run, measurements=tuple(kept), problems=())


def left_out(m: Measurement) -> bool:
    """Whether a case has no time only because the budget was spent."""
    return m.status == "skipped" and m.stopped == "budget"


def refuse_other_place(run: Run, threads: int, base: Base | None) -> None:
    """Times from two places are not one run.

    Raises:
        RunError: what differs, there and here.
    """
    there: Mapping[str, Any] = run.header.get("environment", {})
    here = describe(threads)
    if base:
        here["base"] = {"versions": base.versions}
    elif "base" in there:
        raise RunError(f"{run.folder}: it was measured beside another environment: name its Python with --base again")
    for key in SAME:
        if there.get(key) != here.get(key):
            raise RunError(f"{run.folder}: {key} was {there.get(key)} and is {here.get(key)} here: start a new run")
