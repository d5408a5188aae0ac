"""What is timed: one exported model on one runtime, and the check of its outputs on the very session that is timed."""

from __future__ import annotations

import resource
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..export.artifact import ExportedModel
from ..models.signature import Array
from ..runtimes import all_runtimes
from .records import OutputError
from .timing import block, warm_up

RULER = "ruler:"  # prefix of the rounding errors beside the outputs in a truth file


class Subject:
    """An artifact loaded on a runtime."""

    def __init__(self, folder: str, runtime: str, threads: int) -> None:
        artifact = ExportedModel.open(Path(folder))
        self._signature = artifact.signature()
        began = time.perf_counter()
        self._session = all_runtimes()[runtime].prepare(artifact, threads)
        self.prepare_s = time.perf_counter() - began
        self._staged: Any = None

    def stage(self, sizes: dict[str, int], truth: str | None) -> dict[str, Any]:
        """Put the inputs of a case in place, warm up, and compare the outputs with truth."""
        self._staged = self._session.stage(self._signature.feeds(sizes))
        outputs = self._session.fetch(self._session.run(self._staged))
        errors = compare(outputs, truth) if truth else []
        warm_up(lambda: self._session.run(self._staged))
        return {"errors": [asdict(error) for error in errors]}

    def block(self, seconds: float) -> dict[str, Any]:
        """Time calls for about so many seconds; each call in nanoseconds."""
        return {"ns": block(lambda: self._session.run(self._staged), seconds=seconds)}

    def facts(self) -> dict[str, Any]:
        """What really ran where, and the peak resident memory of this process so far."""
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"placement": asdict(self._session.placement()), "peak_bytes": peak_kib * 1024}


def compare(outputs: dict[str, Array], truth_file: str) -> list[OutputError]:
    """The distance of each output from truth; a missing output, another shape or NaN is said in `detail`."""
    with np.load(truth_file, allow_pickle=False) as truth:
        names = [name for name in truth.files if not name.startswith(RULER)]
        return [_distance(name, outputs.get(name), truth[name], float(truth[RULER + name])) for name in names]


def _distance(name: str, output: Array | None, truth: Array, ruler: float) -> OutputError:
    scale = rms(truth)
    detail = None
    if output is None:
        detail = "missing"
    elif output.shape != truth.shape:
        detail = f"shape {output.shape}, should be {truth.shape}"
    elif not np.isfinite(output).all():
        detail = f"{int((~np.isfinite(output)).sum())} of {output.size} values are not finite"
    if detail or output is None:
        return OutputError(name=name, rms=None, max_abs=None, scale=scale, ruler_rms=ruler, detail=detail)
    difference = output.astype(np.float64) - truth
    worst = float(np.abs(difference).max(initial=0.0))
    return OutputError(name=name, rms=rms(difference), max_abs=worst, scale=scale, ruler_rms=ruler)


def rms(array: Array) -> float:
    """Root of the mean square; 0 for an empty array."""
    return float(np.sqrt(np.mean(np.square(array.astype(np.float64))))) if array.size else 0.0
