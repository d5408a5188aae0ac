"""What several commands take."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

JSON = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]


class Size(StrEnum):
    """The named sizes of a preset."""

    tiny = "tiny"
    small = "small"
    full = "full"


def split(text: str | None) -> list[str] | None:
    """The parts between commas; None stays None."""
    return [part.strip() for part in text.split(",") if part.strip()] if text is not None else None
