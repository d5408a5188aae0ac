"""Every model in every precision: does it export, does it load and run, and what does the precision cost?

Each phase of a model is traced once, in float32; the other precisions are made from that graph.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..export.artifact import ExportedModel
from ..export.exporter import export
from ..export.finish import derive
from ..export.source import Source
from ..models.phases import phases
from ..models.presets import PRESETS
from .client import Worker, WorkerError

RUNTIME = "ort-cpu"
TIMEOUT_S = 120.0
SIZES = {"batch": 2, "sequence": 9, "past": 4, "source": 6}  # other than those of the trace
CANNOT = {"bf16"}  # ONNX Runtime multiplies no bfloat16 matrices on a CPU


@dataclass
class Row:
    """One phase of a model: the error of its worst output by dtype, or why there is none."""

    model: str
    phase: str
    errors: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def rows(models: Iterable[str], size: str, dtypes: Sequence[str]) -> Iterator[Row]:
    """One row for each phase of each preset, as soon as it is known."""
    with tempfile.TemporaryDirectory(prefix="isorun-") as folder, _Loader(Path(folder)) as loader:
        for model in models:
            for phase in phases(PRESETS[model].at(size)):  # type: ignore[arg-type]
                yield _row(Source("preset", model, size), phase, dtypes, Path(folder), loader)


def _row(source: Source, phase: str, dtypes: Sequence[str], folder: Path, loader: _Loader) -> Row:
    row = Row(source.name, phase)
    stem = folder / f"{source.name}-{phase}"
    try:
        single = export(source, phase, stem)
    except Exception as error:  # one model that cannot be exported is a row of the table, whatever it raised
        row.reasons = dict.fromkeys(dtypes, f"export: {error}")
        return row
    for dtype in dtypes:
        try:
            artifact = single if dtype == "fp32" else derive(single, dtype, stem.with_name(f"{stem.name}-{dtype}"))
        except Exception as error:  # as above
            row.reasons[dtype] = f"export: {error}"
            continue
        row.errors[dtype] = max(artifact.errors.values(), default=float("nan"))
        reason = None if dtype in CANNOT else loader.refusal(artifact)
        if reason:
            row.reasons[dtype] = reason
    return row


class _Loader:
    """A process that loads and runs exports, and is replaced when one of them kills it."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "worker.log"
        self._worker: Worker | None = None

    def __enter__(self) -> _Loader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker is not None:
            self._worker.close()

    def refusal(self, artifact: ExportedModel) -> str | None:
        """Why ONNX Runtime, with all its optimisations, does not run an export; None if it does."""
        if self._worker is None or not self._worker.alive:
            self._worker = Worker(self._log, threads=1)
        try:
            self._worker.ask("load", TIMEOUT_S, folder=str(artifact.folder), runtime=RUNTIME, threads=1)
            self._worker.ask("stage", TIMEOUT_S, sizes=SIZES, truth=None)
        except WorkerError as error:
            return str(error)
        return None


def markdown(found: Sequence[Row], dtypes: Sequence[str]) -> str:
    """The rows as a table."""
    lines = [
        f"| preset | phase | {' | '.join(dtypes)} |",
        f"|---|---|{'---:|' * len(dtypes)}",
        *(f"| `{row.model}` | {row.phase} | {' | '.join(_cell(row, dtype) for dtype in dtypes)} |" for row in found),
    ]
    return "\n".join(lines) + "\n"


def _cell(row: Row, dtype: str) -> str:
    error = f"{row.errors[dtype]:.1e}" if dtype in row.errors else ""
    return " ".join(filter(None, (error, row.reasons.get(dtype, "").replace("|", "/"))))
