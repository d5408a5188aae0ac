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


class Dtype(StrEnum):
    """The precisions of a graph (`export.artifact.DTYPES`)."""

    fp32 = "fp32"
    fp16 = "fp16"
    bf16 = "bf16"
    int8 = "int8"
    int8_weights = "int8-weights"
    int4 = "int4"


class Target(StrEnum):
    """Whose operators an export may use."""

    portable = "portable"
    ort_cpu = "ort-cpu"
    ort_cuda = "ort-cuda"


def split(text: str | None) -> list[str] | None:
    """The parts between commas; None stays None."""
    return [part.strip() for part in text.split(",") if part.strip()] if text is not None else None
