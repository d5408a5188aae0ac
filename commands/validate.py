"""`isorun validate` and `isorun mutate`: is this file what it should be, and would a fault be seen?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import findings, say, say_json, table
from .options import JSON


def validate(
    path: Annotated[Path, typer.Argument(help="An .onnx file, an exported folder, or an OpenVINO .xml.")],
    reference: Annotated[str | None, typer.Option(help="PRESET[@SIZE], module:factory or another .onnx.")] = None,
    inputs: Annotated[Path | None, typer.Option(help="Arrays by input name, .npz.")] = None,
    expected: Annotated[Path | None, typer.Option(help="Arrays by output name, .npz.")] = None,
    runtime: Annotated[list[str] | None, typer.Option(help="Default: every runtime here.")] = None,
    as_json: JSON = False,
) -> None:
    """Find any real difference between an exported model and what it should be. Exit 0 pass, 1 fail, 2 error."""
    from ..bench.validate.finding import EXIT
    from ..bench.validate.run import validate as run

    result = run(path, reference=reference, inputs=inputs, expected=expected, runtimes=runtime)
    if as_json:
        say_json(result.to_json())
    else:
        findings(result)
    raise typer.Exit(EXIT[result.verdict])


def mutate(
    paths: Annotated[list[Path], typer.Argument(help="Exported folders.")],
    seed: Annotated[int, typer.Option(help="Where the faults are planted.")] = 0,
    as_json: JSON = False,
) -> None:
    """Plant every kind of fault in exported models, and see which ones validation finds. Exit 1 if one is missed."""
    from ..bench.certificate import certify, columns

    rows = []
    for path in paths:
        for mutant in certify(path, seed):
            rows.append({"model": path.name, **columns(mutant)})
    if as_json:
        say_json(rows)
    else:
        table("planted faults", rows)
    missed = sum(row["validate"] == "missed" for row in rows)
    counted = sum(row["validate"] != "equivalent" for row in rows)
    say(f"{counted - missed} of {counted} faults that change the function are found")
    raise typer.Exit(1 if missed else 0)
