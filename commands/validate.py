"""`isorun validate` and `isorun mutate`: is this file what it should be, and would a fault be seen?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..terminal import fail, findings, say, say_json, table, warn
from .options import JSON

if TYPE_CHECKING:
    from ..bench.validate.finding import Report


def validate(
    path: Annotated[Path, typer.Argument(help="An .onnx file, an exported folder, or an OpenVINO .xml.")],
    reference: Annotated[
        str | None, typer.Option(help="PRESET[@SIZE], hf:FOLDER, a checkpoint folder, module:factory or another .onnx.")
    ] = None,
    inputs: Annotated[Path | None, typer.Option(help="Arrays by input name, .npz.")] = None,
    expected: Annotated[Path | None, typer.Option(help="Arrays by output name, .npz.")] = None,
    runtime: Annotated[list[str] | None, typer.Option(help="Default: every runtime here.")] = None,
    html: Annotated[Path | None, typer.Option(help="Also write the report as one self-contained page.")] = None,
    as_json: JSON = False,
) -> None:
    """Find any real difference between an exported model and what it should be. Exit 0 pass, 1 fail, 2 error."""
    from ..bench.validate.finding import EXIT
    from ..bench.validate.run import validate as run

    result = run(path, reference=reference, inputs=inputs, expected=expected, runtimes=runtime)
    if html is not None:
        _write(html, result)
    if as_json:
        say_json(result.to_json())
    else:
        findings(result)
    raise typer.Exit(EXIT[result.verdict])


def _write(file: Path, result: Report) -> None:
    """The page, or a refusal where it cannot be written."""
    from ..reports.validation import page

    try:
        file.write_text(page(result.to_json()), encoding="utf-8", errors="replace")
    except OSError as error:
        fail(f"--html {file}: {error.strerror}")


def mutate(
    paths: Annotated[list[Path] | None, typer.Argument(help="Exported folders.")] = None,
    seed: Annotated[int, typer.Option(help="Where the faults are planted.")] = 0,
    whole: Annotated[bool, typer.Option("--all", help="Every preset at tiny instead, exported on the way.")] = False,
    into: Annotated[Path, typer.Option(help="With --all: what is done lies here, and is not done again.")] = Path(
        "isorun-mutants"
    ),
    jobs: Annotated[int, typer.Option(min=1, help="With --all: processes.")] = 1,
    budget: Annotated[float, typer.Option(help="With --all: seconds after which nothing new is begun.")] = 36000.0,
    unmutated: Annotated[
        bool, typer.Option(help="With --all: no faults; every graph with the weights of five seeds, which must pass.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Plant every kind of fault in exported models, and see which ones validation finds. Exit 1 if one is missed."""
    if whole == bool(paths):
        fail("give exported folders, or --all")
    if unmutated and not whole:
        fail("--unmutated: give it with --all")
    rows = _zoo(into, jobs, budget, planted=not unmutated) if whole else _mutants(paths or [], seed)
    if as_json:
        say_json(rows)
    elif rows and not whole:
        table("planted faults", rows)
    planted = [row for row in rows if row["fault"] and row["validate"] != "equivalent"]
    plain = [row for row in rows if not row["fault"]]
    missed, failed = (
        sum(row["validate"] == word for row in some) for word, some in (("missed", planted), ("fail", plain))
    )
    if planted or not plain:
        say(f"{len(planted) - missed} of {len(planted)} faults that change the function are found")
    if plain:
        say(f"{len(plain) - failed} of {len(plain)} graphs without a fault pass")
    raise typer.Exit(1 if missed or failed else 0)


def _mutants(paths: list[Path], seed: int) -> list[dict[str, Any]]:
    from ..bench.certificate import certify, columns

    return [{"model": path.name, **columns(mutant)} for path in paths for mutant in certify(path, seed)]


def _zoo(into: Path, jobs: int, budget: float, *, planted: bool) -> list[dict[str, Any]]:
    """Go on where the folder stops, and write its table anew."""
    from ..bench import zoo

    for task, rows in zoo.run(into, jobs, budget, planted=planted):
        missed = [row["fault"] or "fails without a fault" for row in rows if row["validate"] in ("missed", "fail")]
        warn(f"{task.model} {task.phase}, seed {task.seed}: {len(rows) - 1} mutants; {', '.join(missed) or 'all well'}")
    rows = zoo.records(into)
    (into / "mutations.md").write_text(zoo.page(rows))
    say(into / "mutations.md")
    return rows
