"""`isorun precision`: what each precision costs each model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import say, warn
from .options import Size, split


def precision(
    models: Annotated[str, typer.Argument(help="Presets, separated by commas, or all.")] = "all",
    size: Annotated[Size, typer.Option(help="tiny, small, or full as published.")] = Size.tiny,
    dtypes: Annotated[
        str, typer.Option(help="Precisions, separated by commas.")
    ] = "fp32,fp16,bf16,int8,int8-weights,int4",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The Markdown file to write.")] = None,
) -> None:
    """Export every phase of the models in every precision, run them, and tabulate the errors. Exit 1 if one fails."""
    from ..bench.precisions import markdown, rows
    from ..bench.suite import known
    from ..export.artifact import DTYPES
    from ..models.presets import PRESETS

    names = list(PRESETS) if models == "all" else split(models) or []
    chosen = split(dtypes) or []
    known("model", names, PRESETS)
    known("dtype", chosen, DTYPES)
    found = []
    for row in rows(names, size.value, chosen):
        found.append(row)
        errors = ", ".join(f"{dtype} {error:.1e}" for dtype, error in row.errors.items())
        warn(f"{row.model} {row.phase}: {errors}" + "".join(f"; {d}: {why}" for d, why in row.reasons.items()))
    text = markdown(found, chosen)
    if output is None:
        say(text)
    else:
        output.write_text(text)
    raise typer.Exit(1 if any(row.reasons for row in found) else 0)
