"""Evaluating a model file in a worker: any runtime, with or without its optimisations, arrays in and out as files."""

from __future__ import annotations

import resource
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..export.artifact import ExportedModel, Source
from ..runtimes import all_runtimes
from ..runtimes.base import Session

SOURCES = {"source": False, "source64": True}  # the model that was exported: in its own precision, and in float64


class Evaluation:
    """One model file on one runtime, or the source behind it, within a limit of address space."""

    def __init__(
        self, file: str, dtype: str, runtime: str, optimise: bool, memory_bytes: int, source: dict[str, Any], phase: str
    ) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        self._session = _open(Path(file), dtype, runtime, optimise, Source(**source), phase)

    def evaluate(self, inputs: str, outputs: str) -> dict[str, Any]:
        """Run the arrays of one .npz and write the outputs to another, with what ran where.

        Names in the files bear a prefix, since a model may call an input as `numpy.savez` calls an argument.
        """
        with np.load(inputs, allow_pickle=False) as archive:
            feeds = {name.removeprefix("i:"): archive[name] for name in archive.files}
        results = self._session.fetch(self._session.run(self._session.stage(feeds)))
        np.savez(outputs, allow_pickle=False, **{f"o:{name}": array for name, array in results.items()})
        return {"placement": asdict(self._session.placement())}


def _open(file: Path, dtype: str, runtime: str, optimise: bool, source: Source, phase: str) -> Session:
    if runtime in SOURCES and source.kind == "file":
        file, runtime = Path(source.name), "reference"  # another graph is the reference
    if runtime in SOURCES:
        from .truth import SourceSession

        return SourceSession(source, phase, double=SOURCES[runtime])
    artifact = ExportedModel(
        folder=file.parent,
        phase=phase,
        dtype=dtype,
        opset=0,
        source=source,
        ops={},
        files={},
        limits={},
        versions={},
        seconds=0.0,
        model=file.name,
    )
    return all_runtimes()[runtime].prepare(artifact, 1, optimise=optimise)
