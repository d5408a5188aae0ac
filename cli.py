"""The `isorun` command: arguments become one call into the packages. Exit status 0, 1 (a difference), 2 (refused)."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .terminal import drive, fail, findings, say, say_json, table, warn

if TYPE_CHECKING:
    from .bench.suite import Suite

app = typer.Typer(
    help="The same Transformer on every ONNX runtime: export, check, measure, report.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
RUNS = Path("isorun-runs")
JSON = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]


class Kind(StrEnum):
    """What `isorun list` can list."""

    models = "models"
    runtimes = "runtimes"
    suites = "suites"


class Size(StrEnum):
    """The named sizes of a preset."""

    tiny = "tiny"
    small = "small"
    full = "full"


class Format(StrEnum):
    """What `isorun report` can write."""

    html = "html"
    md = "md"
    csv = "csv"
    json = "json"


@app.command("list")
def list_(kind: Annotated[Kind | None, typer.Argument()] = None, as_json: JSON = False) -> None:
    """What there is, and why a runtime is missing here."""
    from . import listing

    tables = {name: getattr(listing, name)() for name in ([kind.value] if kind else [k.value for k in Kind])}
    if as_json:
        say_json(tables)
        return
    for name, rows in tables.items():
        table(name, [{key: row[key] for key in row if key != "source"} for row in rows])


@app.command()
def doctor(as_json: JSON = False) -> None:
    """The machine, the runtimes, and what to install for what is missing."""
    from . import listing
    from .bench.environment import cores, describe

    facts, runtimes = describe(cores()), listing.runtimes()
    if as_json:
        say_json({"environment": facts, "runtimes": runtimes})
    else:
        versions = ", ".join(f"{name} {version}" for name, version in facts.pop("versions", {}).items())
        table("machine", [{"fact": key, "value": value} for key, value in facts.items()])
        say(f"versions: {versions}\n")
        table("runtimes", runtimes)
    if not any(row["available"] for row in runtimes):
        fail("no runtime can run here")


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="A preset; `isorun list models` shows them.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make.")],
    phase: Annotated[str, typer.Option(help="forward, step (with a cache) or encode.")] = "forward",
    size: Annotated[Size, typer.Option(help="tiny, small, or full as published.")] = Size.small,
    opset: Annotated[int, typer.Option(min=18, max=25)] = 23,
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
) -> None:
    """Export a model to ONNX with free batch, sequence and past, and a manifest."""
    from .bench.suite import known
    from .export.artifact import Source
    from .export.exporter import export as run
    from .models.presets import PRESETS

    known("model", [model], PRESETS)
    artifact = run(Source("preset", model, size.value, seed), phase, output, opset=opset)
    say(f"{sum(artifact.ops.values())} nodes at opset {artifact.opset} in {artifact.seconds:.1f} s")
    say(artifact.model_path)


@app.command()
def bench(
    suite: Annotated[str, typer.Argument(help="`isorun list suites` shows them.")] = "quick",
    models: Annotated[str | None, typer.Option(help="Presets, separated by commas.")] = None,
    runtimes: Annotated[str | None, typer.Option(help="Runtimes, separated by commas.")] = None,
    seq: Annotated[str | None, typer.Option(help="Lengths of a forward pass: 64,128 or 128:8192:2x.")] = None,
    past: Annotated[str | None, typer.Option(help="Cached tokens before a decode step, written likewise.")] = None,
    size: Annotated[Size | None, typer.Option(help="tiny, small, or full as published.")] = None,
) -> None:
    """Export, check and measure a suite of models, and write a report."""
    from .bench.runner import Runner
    from .bench.suite import load

    plan = load(
        suite, models=_split(models), runtimes=_split(runtimes), seq=seq, past=past, size=size.value if size else None
    )
    runner = Runner(plan, _new_folder(plan))
    for name, reason in runner.missing.items():
        warn(f"{name} left out: {reason}")
    if len(runner.missing) == len(plan.runtimes):
        fail("none of the chosen runtimes can run here")
    interrupted = drive(runner)
    _report(runner.folder)
    if interrupted:
        raise typer.Exit(130)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file to write; else all into the run.")
    ] = None,
    form: Annotated[Format, typer.Option("--format")] = Format.html,
) -> None:
    """Make the report of a run again, also of one that was interrupted."""
    if output is None:
        _report(run)
        return
    from .bench.records import read_run
    from .reports.build import render

    output.write_text(render(read_run(run), form.value))
    say(output)


@app.command()
def validate(
    path: Annotated[Path, typer.Argument(help="An .onnx file, an exported folder, or an OpenVINO .xml.")],
    reference: Annotated[str | None, typer.Option(help="PRESET[@SIZE], module:factory or another .onnx.")] = None,
    inputs: Annotated[Path | None, typer.Option(help="Arrays by input name, .npz.")] = None,
    expected: Annotated[Path | None, typer.Option(help="Arrays by output name, .npz.")] = None,
    runtime: Annotated[list[str] | None, typer.Option(help="Default: every runtime here.")] = None,
    as_json: JSON = False,
) -> None:
    """Find any real difference between an exported model and what it should be. Exit 0 pass, 1 fail, 2 error."""
    from .bench.validate.finding import EXIT
    from .bench.validate.run import validate as run

    result = run(path, reference=reference, inputs=inputs, expected=expected, runtimes=runtime)
    if as_json:
        say_json(result.to_json())
    else:
        findings(result)
    raise typer.Exit(EXIT[result.verdict])


@app.command()
def mutate(
    paths: Annotated[list[Path], typer.Argument(help="Exported folders.")],
    seed: Annotated[int, typer.Option(help="Where the faults are planted.")] = 0,
    as_json: JSON = False,
) -> None:
    """Plant every kind of fault in exported models, and see which ones validation finds. Exit 1 if one is missed."""
    from .bench.certificate import certify, columns

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


def main() -> None:
    """The console script: refusals are one line on stderr and exit status 2; a traceback goes to a file."""
    try:
        app()
    except Exception as error:  # the last resort: no traceback reaches a user
        if _is_refusal(error):
            fail(str(error))
        with tempfile.NamedTemporaryFile("w", prefix="isorun-", suffix=".log", delete=False) as log:
            traceback.print_exc(file=log)
        fail(f"a fault in isorun itself: {type(error).__name__}: {error}; please report it with {log.name}")


def _is_refusal(error: Exception) -> bool:
    """Errors whose message is for the user. By name: importing their modules would import torch for `report`."""
    refusals = {"ArtifactError", "CheckpointError", "ConfigError", "ExportError", "RunError", "SuiteError"}
    return isinstance(error, OSError) or type(error).__name__ in refusals


def _report(folder: Path) -> None:
    """Write all formats into the run's folder; the last line is the path of the page."""
    from .bench.records import read_run
    from .reports.build import document, write

    run = read_run(folder)
    for paragraph in document(run).lead:
        say(paragraph)
    say(write(run, folder))


def _new_folder(plan: Suite) -> Path:
    stem = f"{plan.name}-{datetime.now():%Y%m%d-%H%M%S}"
    return next(folder for folder in _candidates(stem) if not folder.exists())


def _candidates(stem: str) -> Iterator[Path]:
    yield RUNS / stem
    number = 2
    while True:
        yield RUNS / f"{stem}-{number}"
        number += 1


def _split(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text is not None else None
