"""What is timed: one exported model on one runtime, and the check of its outputs on the very session that is timed."""

from __future__ import annotations

import resource
import time
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..export.artifact import ExportedModel
from ..export.distance import rms
from ..models.signature import Array
from ..runtimes import all_runtimes
from . import memory
from .affinity import Cores
from .records import OutputError
from .timing import block, warm_up

RULER = "ruler:"  # prefix of the rounding errors beside the outputs in a truth file


class Subject:
    """An artifact loaded on a runtime, in a process that may use `memory_bytes` (None: all there is).

    `session` replaces the session options of the manifest. A process that does nothing else (`alone`) binds its threads
    to cores, see `affinity`.
    """

    def __init__(
        self,
        folder: str,
        runtime: str,
        threads: int,
        memory_bytes: int | None = None,
        session: dict[str, str] | None = None,
        *,
        alone: bool = False,
    ) -> None:
        artifact = ExportedModel.open(Path(folder))
        if session is not None:
            artifact = replace(artifact, session=session)
        self._signature = artifact.signature()
        chosen = all_runtimes()[runtime]
        chosen.missing()  # imports its library, which is none of the model's memory
        if memory_bytes is not None:
            limit(memory_bytes)
        self._empty = memory.resident_bytes()
        began = time.perf_counter()
        self._session = chosen.prepare(artifact, threads)
        self.prepare_s = time.perf_counter() - began
        self._loaded = memory.resident_bytes()
        self._cores = Cores(threads)
        self._cache = 0
        self._alone = alone
        self._staged: Any = None

    def stage(self, sizes: dict[str, int], truth: str | None) -> dict[str, Any]:
        """Put the inputs of a case in place, warm up, and compare the outputs with truth."""
        memory.reset_peak()
        feeds = self._signature.feeds(sizes)
        self._staged = self._session.stage(feeds)
        outputs = self._session.fetch(self._session.run(self._staged))
        arrays = {**feeds, **outputs}
        self._cache = memory.cache_bytes({name: array.nbytes for name, array in arrays.items()})
        errors = compare(outputs, truth) if truth else []
        del feeds, outputs, arrays
        warm_up(lambda: self._session.run(self._staged))
        return {"errors": [asdict(error) for error in errors]}

    def block(self, seconds: float) -> dict[str, Any]:
        """Time calls for about so many seconds; each call in nanoseconds."""
        with self._cores.bound() if self._alone else nullcontext():
            return {"ns": block(lambda: self._session.run(self._staged), seconds=seconds)}

    def facts(self) -> dict[str, Any]:
        """What really ran where and under which conditions, and the memory of this length at its peak and by kind."""
        after, peak = memory.resident_bytes(), memory.peak_bytes()
        kinds = memory.parts(empty=self._empty, loaded=self._loaded, after=after, peak=peak, cache=self._cache)
        placement = asdict(self._session.placement())
        # What must be the same for every runtime that is compared.
        placement["facts"] |= {"affinity": str(self._cores), "copies": "outside the timed call"}
        return {"placement": placement, "peak_bytes": peak, "memory": kinds}


def limit(memory_bytes: int) -> None:
    """Limit what this process may allocate: what asks for more gets an error of its own, and nothing else suffers."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes if hard < 0 else min(memory_bytes, hard), hard))


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
