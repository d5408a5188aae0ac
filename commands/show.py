"""`isorun list` and `isorun doctor`: what there is."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ..terminal import fail, say, say_json, table
from .options import JSON


class Kind(StrEnum):
    """What `isorun list` can list."""

    models = "models"
    runtimes = "runtimes"
    suites = "suites"


def list_(kind: Annotated[Kind | None, typer.Argument()] = None, as_json: JSON = False) -> None:
    """What there is, and why a runtime is missing here."""
    from .. import listing

    tables = {name: getattr(listing, name)() for name in ([kind.value] if kind else [k.value for k in Kind])}
    if as_json:
        say_json(tables)
        return
    for name, rows in tables.items():
        table(name, [{key: row[key] for key in row if key != "source"} for row in rows])


def doctor(as_json: JSON = False) -> None:
    """The machine, the runtimes, and what to install for what is missing."""
    from .. import listing
    from ..bench.environment import cores, describe

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
