"""`isorun tune`: which session options and fused operators make a model faster on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..terminal import say, table
from .options import Size

if TYPE_CHECKING:
    from ..bench.tune import Trial


def tune(
    model: Annotated[str, typer.Argument(help="PRESET[@SIZE], a checkpoint, module:factory, or an exported folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make.")],
    phase: Annotated[str, typer.Option(help="forward, step or encode.")] = "forward",
    size: Annotated[Size, typer.Option(help="Of a preset: tiny, small, or full as published.")] = Size.small,
    seq: Annotated[int, typer.Option(min=1, help="Tokens of a call.")] = 128,
    past: Annotated[int, typer.Option(min=0, help="Cached tokens before it.")] = 0,
    batch: Annotated[int, typer.Option(min=1)] = 1,
    threads: Annotated[int | None, typer.Option(min=1, help="Default: their number is tried as well.")] = None,
    budget: Annotated[float, typer.Option(min=1, help="Seconds to measure; loading comes on top.")] = 60.0,
) -> None:
    """Try each option against the defaults, and write the fastest graph with its options. Exit 1 if none is faster."""
    from ..bench.tune import tune as run
    from ..export.artifact import MANIFEST, ExportedModel
    from ..export.source import read

    if (Path(model) / MANIFEST).is_file():
        artifact = ExportedModel.open(Path(model))
        source, phase = artifact.source, artifact.phase
    else:
        source = read(model, size.value)
    sizes = {"batch": batch, "sequence": seq, "past": past, "source": seq}
    *trials, best = run(source, phase, output, sizes, threads=threads, budget_s=budget)
    table(f"{source.name}, {phase}, {batch} × {seq} tokens after {past}", [_row(trial) for trial in trials])
    say(f"chosen: {best.name}")
    say(output)
    raise typer.Exit(0 if best.helps else 1)


def _row(trial: Trial) -> dict[str, Any]:
    gain = trial.gain
    interval = f"{gain.interval.low:.2f}-{gain.interval.high:.2f}" if gain else ""
    return {
        "setting": trial.name,
        "ms": f"{trial.seconds * 1e3:.4g}" if trial.seconds is not None else "",
        "times as fast": f"{gain.ratio:.2f}" if gain else "",
        "95 %": interval,
        "": trial.reason or (gain.word if gain else "base"),
    }
