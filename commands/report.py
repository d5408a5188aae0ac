"""`isorun report`: a run folder becomes pages, tables and charts; several become the matrix of support."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..terminal import fail, say, warn


class Format(StrEnum):
    """What `isorun report` can write."""

    html = "html"
    md = "md"
    csv = "csv"
    json = "json"
    parquet = "parquet"
    pytest_benchmark = "pytest-benchmark"


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="A run folder, or a pytest-benchmark file; with --matrix, several."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The file to write; else all into the run."),
    ] = None,
    form: Annotated[Format | None, typer.Option("--format", help="Default: by the name of the file.")] = None,
    charts: Annotated[Path | None, typer.Option(help="A folder for the charts as SVG and PNG.")] = None,
    matrix: Annotated[bool, typer.Option("--matrix", help="What is supported where, from all of the runs.")] = False,
) -> None:
    """Make the report of a run again, also of one that was interrupted."""
    if matrix:
        _matrix(runs, output)
        return
    if len(runs) > 1:
        fail(f"{len(runs)} runs: a report is of one run; isorun compare takes several, and so does --matrix")
    (run,) = runs
    if charts is not None:
        _charts(run, charts)
    chosen = form or _by_name(output)
    if chosen is not None:
        _one(run, output, chosen)
    elif charts is None:
        write_all(run)


def write_all(folder: Path) -> None:
    """Write all formats into the run's folder; the last line is the path of the page."""
    from ..reports.build import document, write
    from ..reports.salvage import read

    run = read(folder)
    for problem in run.problems:
        warn(problem)
    for paragraph in document(run).lead:
        say(paragraph)
    say(write(run, folder if folder.is_dir() else folder.with_suffix("")))


def _one(folder: Path, output: Path | None, form: Format) -> None:
    from ..reports.build import render
    from ..reports.salvage import read

    _put(render(read(folder), form.value), output)


def _charts(folder: Path, target: Path) -> None:
    from ..reports.build import document
    from ..reports.pictures import write_charts
    from ..reports.salvage import read

    written = write_charts(document(read(folder)), target)
    say(f"{len(written)} files in {target}")


def _matrix(folders: list[Path], output: Path | None) -> None:
    from ..reports import html, markdown
    from ..reports.build import encoded
    from ..reports.salvage import read
    from ..reports.support import matrix

    made = matrix([read(folder) for folder in folders])
    page = _by_name(output) is Format.html
    _put(encoded(html.render(made) if page else markdown.render(made, lines=None)), output)


def _put(content: bytes, output: Path | None) -> None:
    if output is None:
        sys.stdout.buffer.write(content)
    else:
        output.write_bytes(content)
        say(output)


def _by_name(output: Path | None) -> Format | None:
    """The format that a file name asks for.

    Raises:
        typer.Exit: the name asks for none that there is.
    """
    if output is None:
        return None
    known = {f".{form.value}": form for form in Format}
    if output.suffix not in known:
        fail(f"{output}: cannot tell the format from the name; say --format, one of {', '.join(Format)}")
    return known[output.suffix]
