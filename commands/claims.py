"""`isorun claims`: every statement of the source document, tried on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal import fail, say, say_json, table, warn
from .options import JSON, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..bench.claims.outcome import Claim, Result


def claims(
    only: Annotated[str | None, typer.Option(help="Claims 1 … 21 and errors E1 … E9, separated by commas.")] = None,
    errors: Annotated[bool, typer.Option("--errors", help="The document's errors alone.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A page (.html), Markdown (.md), or a run's folder, whose page gets them."),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Try the statements that this project answers, and its source's errors. Exit 0 when every experiment ran."""
    from ..bench.claims.run import claims as known
    from ..bench.claims.run import gathered, run
    from ..reports.build import write
    from ..reports.claims import FORMATS, save, summary
    from ..reports.salvage import read

    form = output.suffix.removeprefix(".") if output else ""
    into = output if output and output.is_dir() else None
    if into:
        read(into)  # refuses what is no run before minutes are spent
    elif output and form not in FORMATS:
        fail(f"{output}: write a page (.html) or Markdown (.md), or name the folder of a run")
    chosen = _chosen(known(), split(only), errors)
    found = gathered(_told(run(chosen), as_json))
    if as_json:
        say_json(found.to_json())
    else:
        table("claims", [_row(result) for result in found.results])
    if into:
        save(found, into)
        output = write(read(into), into)
    elif output:
        output.write_text(FORMATS[form](found), encoding="utf-8", newline="")
    if not as_json:
        say(output if output else summary(found.results))
    raise typer.Exit(0 if found.complete else 1)


def _chosen(known: Sequence[Claim], only: list[str] | None, errors: bool) -> list[Claim]:
    """Those that were asked for; an unknown one is refused."""
    keys = [claim.key for claim in known]
    for key in only or ():
        if key not in keys:
            fail(f"unknown claim {key!r}; there are {', '.join(keys)}")
    return [claim for claim in known if (only is None or claim.key in only) and (not errors or claim.kind == "error")]


def _told(results: Iterable[Result], quiet: bool) -> Iterator[Result]:
    """Each result with its evidence as it comes."""
    for result in results:
        if not quiet:
            say(f"{result.key}  {result.word}: {result.statement}")
            for part in result.parts:
                say(f"    {'✓' if part.holds else '✗'} {part.says}: {part.evidence}")
        if result.reason:
            warn(f"{result.key} was not tried: {result.reason}")
        yield result


def _row(result: Result) -> dict[str, object]:
    held = sum(part.holds for part in result.parts)
    return {
        "no.": result.key,
        "verdict": result.word,
        "parts": f"{held} of {len(result.parts)}",
        "seconds": f"{result.seconds:.1f}",
        "statement": result.statement,
    }
