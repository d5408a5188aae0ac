"""A run that was measured beside another environment, as two runs whose blocks alternated with each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...bench.beside import SUFFIX, plain
from ...bench.records import Measurement, Run
from .environment import CompareError

VERSIONS = "versions"  # what may differ between the two without a word


def split(run: Run) -> tuple[Run, Run]:
    """The base, whose runtimes have their own names again, and what is held against it.

    Raises:
        CompareError: the run was not measured with a base.
    """
    base = tuple(m for m in run.measurements if m.case.runtime.endswith(SUFFIX))
    if not base:
        raise CompareError(
            "two runs at least are needed: the base, and what is held against it; or one that was measured with --base"
        )
    head = tuple(m for m in run.measurements if not m.case.runtime.endswith(SUFFIX))
    folder = run.folder.with_name(run.folder.resolve().name + SUFFIX)
    there = replace(run, folder=folder, header=_header(run), measurements=tuple(map(_renamed, base)), problems=())
    return there, replace(run, measurements=head)


def _renamed(m: Measurement) -> Measurement:
    return replace(m, case=replace(m.case, runtime=plain(m.case.runtime)))


def _header(run: Run) -> Mapping[str, Any]:
    """The header with the versions of the other environment."""
    other = run.environment.get("base")
    found = other.get(VERSIONS) if isinstance(other, Mapping) else None
    kept = {key: value for key, value in run.environment.items() if key != VERSIONS}
    return {**run.header, "environment": {**kept, VERSIONS: found} if found else kept}
