"""What the command shows in a terminal: tables, progress, one JSON document, one line of refusal."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from .bench.runner import Runner
    from .bench.validate.finding import Report

# A terminal's own width; tables in a pipe or a file get room for every column.
out = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 200)
SHORT = 16  # a column whose texts are all this short is never folded
err = Console(stderr=True, soft_wrap=True, highlight=False)


def say(line: object) -> None:
    """One line on stdout, as it is."""
    out.print(str(line), markup=False)


def warn(line: str) -> None:
    """One line on stderr."""
    err.print(f"isorun: {line}", markup=False)


def fail(message: str) -> NoReturn:
    """Refuse: the message on stderr, and exit status 2."""
    warn(message)
    sys.exit(2)


def say_json(document: Any) -> None:
    """One JSON document on one line."""
    sys.stdout.write(json.dumps(document) + "\n")


def table(title: str, rows: list[dict[str, Any]]) -> None:
    """Rows under the keys that they share."""
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for i, column in enumerate(rows[0]):
        short = all(len(_text(row[column])) <= SHORT for row in rows)
        shown.add_column(column, overflow="fold", no_wrap=i == 0 or short)
    for row in rows:
        shown.add_row(*(Text(_text(value)) for value in row.values()))
    out.print(shown)


def findings(report: Report) -> None:
    """The findings of a validation, worst first, and the verdict as the last line."""
    for line in report.lines():
        say(line)


def drive(runner: Runner) -> bool:
    """Run a suite behind a progress bar with the time that is left; True when it was interrupted."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=err) as progress:
        task = progress.add_task("starting", total=runner.total)
        steps = runner.run()
        try:
            for step in steps:
                progress.update(task, completed=step.done, description=step.label)
        except KeyboardInterrupt:
            steps.close()
            progress.update(task, description="interrupted")
            return True
    return False


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
