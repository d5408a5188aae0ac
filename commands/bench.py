"""`isorun bench`: a suite becomes a run folder and its report."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal import drive, fail, say, warn
from .options import Size, split
from .report import write_all

if TYPE_CHECKING:
    from ..bench.suite import Suite

RUNS = Path("isorun-runs")


def bench(
    suite: Annotated[str, typer.Argument(help="`isorun list suites` shows them; or the path of a .toml.")] = "quick",
    models: Annotated[
        str | None, typer.Option(help="Presets, folders, hf:FOLDER or module:factory, with commas between.")
    ] = None,
    runtimes: Annotated[str | None, typer.Option(help="Runtimes, separated by commas.")] = None,
    seq: Annotated[str | None, typer.Option(help="Lengths of a forward pass: 64,128 or 128:8192:2x.")] = None,
    past: Annotated[str | None, typer.Option(help="Cached tokens before a decode step, written likewise.")] = None,
    batch: Annotated[str | None, typer.Option(help="Rows of a call: 1,2,8. Each is a case of its own.")] = None,
    size: Annotated[Size | None, typer.Option(help="tiny, small, or full as published.")] = None,
    dtypes: Annotated[str | None, typer.Option(help="Precisions of the exports, separated by commas.")] = None,
    budget: Annotated[str | None, typer.Option(help="Keep within this time: 90s, 10m, 2h.")] = None,
    base: Annotated[
        str | None, typer.Option(help="The Python of another environment, to measure beside this one for `compare`.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with a run that ended early.")] = None,
) -> None:
    """Export, check and measure a suite of models, and write a report."""
    from ..bench.beside import ask
    from ..bench.runner import Runner
    from ..bench.suite import load
    from ..bench.suitefile import seconds

    limit_s = seconds(budget) if budget is not None else None
    chosen = {
        "models": split(models),
        "runtimes": split(runtimes),
        "seq": seq,
        "past": past,
        "batch": batch,
        "size": size.value if size else None,
        "dtypes": split(dtypes),
    }
    if resume is None:
        plan = load(suite, **chosen, budget_s=limit_s, limited=True if limit_s else None)
        runner = Runner(plan, _new_folder(plan), base=ask(base, plan.runtimes) if base else None)
    elif any(value is not None for value in chosen.values()):
        fail(
            f"{resume}: a resumed run measures what it was started with; of the other options only --budget and --base "
            "are taken"
        )
    else:
        runner = Runner.resume(resume, limit_s=limit_s, python=base)
    for name, reason in runner.missing.items():
        warn(f"{name} left out: {reason}")
    if len(runner.missing) == len(runner.names):
        fail("none of the chosen runtimes can run here")
    interrupted = drive(runner)
    write_all(runner.folder)
    if interrupted:
        warn(f"go on with: isorun bench --resume {runner.folder}" + (f" --base {base}" if base else ""))
        raise typer.Exit(130)
    if base:
        say(f"this environment against the other: isorun compare {runner.folder}")


def _new_folder(plan: Suite) -> Path:
    stem = f"{plan.name}-{datetime.now():%Y%m%d-%H%M%S}"
    return next(folder for folder in _candidates(stem) if not folder.exists())


def _candidates(stem: str) -> Iterator[Path]:
    yield RUNS / stem
    number = 2
    while True:
        yield RUNS / f"{stem}-{number}"
        number += 1
