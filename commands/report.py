"""`isorun report`: a run folder becomes pages, tables and charts."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..terminal import say


class Format(StrEnum):
    """What `isorun report` can write."""

    html = "html"
    md = "md"
    csv = "csv"
    json = "json"


def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file to write; else all into the run.")
    ] = None,
    form: Annotated[Format, typer.Option("--format")] = Format.html,
) -> None:
    """Make the report of a run again, also of one that was interrupted."""
    if output is None:
        write_all(run)
        return
    from ..bench.records import read_run
    from ..reports.build import render

    output.write_text(render(read_run(run), form.value))
    say(output)


def write_all(folder: Path) -> None:
    """Write all formats into the run's folder; the last line is the path of the page."""
    from ..bench.records import read_run
    from ..reports.build import document, write

    run = read_run(folder)
    for paragraph in document(run).lead:
        say(paragraph)
    say(write(run, folder))
