"""The `isorun` command. Exit status 0 as it should be, 1 a difference, 2 refused with a reason."""

from __future__ import annotations

import tempfile
import traceback

import typer

from .commands.bench import bench
from .commands.claims import claims
from .commands.compare import compare
from .commands.export import export
from .commands.precision import precision
from .commands.report import report
from .commands.show import doctor, list_
from .commands.tune import tune
from .commands.validate import mutate, validate
from .terminal import fail

app = typer.Typer(
    help="The same Transformer on every ONNX runtime: export, check, measure, report.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("list")(list_)
for command in (export, validate, bench, report, compare, claims, mutate, precision, tune, doctor):
    app.command()(command)


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
    refusals = {
        "ArtifactError",
        "CheckpointError",
        "CompareError",
        "ConfigError",
        "ExportError",
        "ReportError",
        "RunError",
        "SourceError",
        "SuiteError",
    }
    return isinstance(error, OSError) or type(error).__name__ in refusals
