"""`isorun bench`: a suite becomes a run folder and its report."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal import drive, fail, warn
from .options import Size, split
from .report import write_all

if TYPE_CHECKING:
    from ..bench.suite import Suite

RUNS = Path("isorun-runs")


def bench(
    suite: Annotated[str, typer.Argument(help="`isorun list suites` shows them.")] = "quick",
    models: Annotated[str | None, typer.Option(help="Presets, separated by commas.")] = None,
    runtimes: Annotated[str | None, typer.Option(help="Runtimes, separated by commas.")] = None,
    seq: Annotated[str | None, typer.Option(help="Lengths of a forward pass: 64,128 or 128:8192:2x.")] = None,
    past: Annotated[str | None, typer.Option(help="Cached tokens before a decode step, written likewise.")] = None,
    size: Annotated[Size | None, typer.Option(help="tiny, small, or full as published.")] = None,
) -> None:
    """Export, check and measure a suite of models, and write a report."""
    from ..bench.runner import Runner
    from ..bench.suite import load

    plan = load(
        suite, models=split(models), runtimes=split(runtimes), seq=seq, past=past, size=size.value if size else None
    )
    runner = Runner(plan, _new_folder(plan))
    for name, reason in runner.missing.items():
        warn(f"{name} left out: {reason}")
    if len(runner.missing) == len(plan.runtimes):
        fail("none of the chosen runtimes can run here")
    interrupted = drive(runner)
    write_all(runner.folder)
    if interrupted:
        raise typer.Exit(130)


def _new_folder(plan: Suite) -> Path:
    stem = f"{plan.name}-{datetime.now():%Y%m%d-%H%M%S}"
    return next(folder for folder in _candidates(stem) if not folder.exists())


def _candidates(stem: str) -> Iterator[Path]:
    yield RUNS / stem
    number = 2
    while True:
        yield RUNS / f"{stem}-{number}"
        number += 1
