"""`isorun export`: a model becomes a folder with a graph and its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import say
from .options import Size


def export(
    model: Annotated[str, typer.Argument(help="A preset; `isorun list models` shows them.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make.")],
    phase: Annotated[str, typer.Option(help="forward, step (with a cache) or encode.")] = "forward",
    size: Annotated[Size, typer.Option(help="tiny, small, or full as published.")] = Size.small,
    opset: Annotated[int, typer.Option(min=18, max=25)] = 23,
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
) -> None:
    """Export a model to ONNX with free batch, sequence and past, and a manifest."""
    from ..bench.suite import known
    from ..export.exporter import export as run
    from ..export.source import Source
    from ..models.presets import PRESETS

    known("model", [model], PRESETS)
    artifact = run(Source("preset", model, size.value, seed), phase, output, opset=opset)
    say(f"{sum(artifact.ops.values())} nodes at opset {artifact.opset} in {artifact.seconds:.1f} s")
    say(artifact.model_path)
