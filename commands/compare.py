"""`isorun compare`: is HEAD slower or less right than BASE, for sure?"""

from __future__ import annotations

import math
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal import fail, say, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..reports.compare.comparison import Comparison
    from ..reports.document import Cell


class Format(StrEnum):
    """What `isorun compare` can write."""

    html = "html"
    md = "md"
    csv = "csv"
    json = "json"


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="BASE HEAD", help="Run folders or JSON of pytest-benchmark; of more, the last is HEAD."),
    ],
    fail_over: Annotated[str, typer.Option("--fail-over", help="The slow-down to accept, such as 5%.")] = "0%",
    allow_different: Annotated[
        list[str] | None, typer.Option("--allow-different", help="A fact of the environment; repeat it, or use commas.")
    ] = None,
    form: Annotated[Format | None, typer.Option("--format", help="Default: a table in the terminal.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The file to write.")] = None,
) -> None:
    """Compare runs case by case. Exit 0 no regression, 1 something is for sure slower or broke, 2 refused."""
    from ..reports.compare.build import FORMATS
    from ..reports.compare.comparison import compare as hold
    from ..reports.compare.match import read

    allowed = [key.strip() for text in allow_different or () for key in text.split(",")]
    comparison = hold([read(run) for run in runs], limit=_limit(fail_over), allowed=allowed)
    chosen = form or _by_name(output)
    if chosen is None:
        _show(comparison)
    elif output is None:
        sys.stdout.write(FORMATS[chosen.value](comparison))
    else:
        text = FORMATS[chosen.value](comparison)
        output.write_text(text, encoding="utf-8", errors="replace", newline="")
        say(output)
    raise typer.Exit(1 if comparison.regressed else 0)


def _show(comparison: Comparison) -> None:
    """The tables that stand open in the other formats, and the answer as the last line."""
    from ..reports.compare.view import document
    from ..reports.document import Table

    sections = document(comparison, charts=False).sections
    for part in (part for section in sections for part in section.parts):
        if isinstance(part, Table) and not part.details:
            table(part.caption, [_texts(part.columns, row) for row in part.rows])
            say("")
    answer, *rest = sections[0].lead
    for sentence in (*rest, answer):
        say(sentence)


def _texts(columns: Sequence[str], row: Sequence[Cell]) -> dict[str, str]:
    return dict(zip(columns, (cell.text for cell in row), strict=True))


def _by_name(output: Path | None) -> Format | None:
    """The format that the name of a file asks for; a page where it asks for none."""
    if output is None:
        return None
    ending = output.suffix.removeprefix(".")
    return Format(ending) if ending in list(Format) else Format.html


def _limit(text: str) -> float:
    """A percentage as a fraction."""
    try:
        limit = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        fail(f"--fail-over {text}: write a percentage of at least 0, such as 5%")
    return limit
