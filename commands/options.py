"""What several commands take."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ..export.artifact import DTYPES

JSON = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]


class Size(StrEnum):
    """The named sizes of a preset."""

    tiny = "tiny"
    small = "small"
    full = "full"


Dtype = StrEnum("Dtype", {name: name for name in DTYPES})
class Target(StrEnum):
    """Whose operators an export may use."""

    portable = "portable"
    ort_cpu = "ort-cpu"
    ort_cuda = "ort-cuda"


def split(text: str | None) -> list[str] | None:
    """The parts between commas; None stays None."""
    return [part.strip() for part in text.split(",") if part.strip()] if text is not None else None
