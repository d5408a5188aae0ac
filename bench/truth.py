"""Truth: the source model in float64, and what follows from it. This is the part of a worker that imports torch."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..export import cache
from ..export.artifact import QUANTISED, ArtifactError, ExportedModel
from ..export.distance import rms
from ..export.outputs import outputs, outputs64
from ..export.source import Source
from ..models.phases import PhaseModule
from ..models.signature import Array, Feeds, Signature, Sizes
from ..runtimes.base import Placement
from ..runtimes.reference import Float64Graph
from .drift import HALVES, drift, in_precision, quantised_truth, rounded_source
from .environment import free_bytes
from .subject import RULER

SAME = 1e-9  # of the output's scale: far above float64 rounding, far below any real difference

# Where the source and the graph are compared: an odd length, more than one row, padding, some past.
PROBE = {"batch": 3, "sequence": 33, "past": 7, "source": 21}


def export_model(folder: str, source: dict[str, Any], phase: str, dtype: str) -> dict[str, Any]:
    """Export; answers the seconds that it took, and where positions end that the graph looks up."""
    _modules.cache_clear()  # the last model's weights would count against this one's memory
    artifact, _ = cache.export(Source(**source), phase, Path(folder), dtype=dtype)
    return {"seconds": artifact.seconds, "positions": artifact.limits.get("position_ids")}


def same_function(folder: str) -> dict[str, Any]:
    """The largest distance over all outputs between graph and source, in units of each output's scale."""
    artifact, module, double = _modules(folder)
    most = artifact.limits.get("position_ids", PROBE["sequence"] + PROBE["past"])
    probe = {**PROBE, "sequence": min(PROBE["sequence"], most - PROBE["past"])}
    feeds = artifact.signature().feeds(probe, padding="left")
    truth = outputs64(double, feeds)
    graph = Float64Graph(artifact.model_path).run(feeds)
    if artifact.dtype != "fp32":
        rounded = outputs64(rounded_source(module), feeds) if artifact.dtype in HALVES else None
        return {**drift(graph, truth, rounded), "probe": probe}
    distances = {name: distance(graph[name], array) for name, array in truth.items()}
    worst = max(distances, key=lambda name: distances[name])
    return {"check": "same function", "output": worst, "distance": distances[worst], "limit": SAME, "probe": probe}


def write(folder: str, sizes: dict[str, int], file: str) -> dict[str, Any]:
    """Write the float64 outputs of one case, each with its ruler: the error of torch in the export's own dtype.

    The ruler is at least the error of rounding truth itself to that dtype: no runtime can do better. Of a quantised
    graph truth is the graph itself, and the ruler at least the error of its quantised activations (see `drift`).

    Raises:
        ArtifactError: the graph has no such sizes, or there is no memory for them.
    """
    artifact, module, double = _modules(folder)
    reason = impossible(artifact.signature(), sizes, free_bytes())
    if reason is not None:
        raise ArtifactError(reason)
    feeds = artifact.signature().feeds(sizes)
    single = outputs(module, feeds)
    truth = outputs64(double, feeds)
    rulers = {
        name: max(rms(single[name] - array), rms(array.astype(single[name].dtype) - array))
        for name, array in truth.items()
    }
    if artifact.dtype in QUANTISED:
        truth, activations = quantised_truth(artifact, feeds)
        rulers = {name: max(ruler, activations[name]) for name, ruler in rulers.items()}
    np.savez(file, **truth, **{RULER + name: ruler for name, ruler in rulers.items()})  # type: ignore[arg-type]
    return {"file": file}


def impossible(signature: Signature, sizes: Sizes, free: int) -> str | None:
    """Why a graph cannot be called at these sizes with so many bytes free, told before any of them is taken."""
    for axis in sorted(signature.axes - sizes.keys()):
        return f"the graph has a free axis {axis!r}, and the sizes of a suite are {', '.join(sizes)}"
    for place, axis in enumerate(("batch", "sequence")):
        fixed = {spec.shape[place] for spec in signature.inputs if len(spec.shape) > place}
        if axis not in signature.axes and sizes[axis] not in fixed:
            return f"{axis} {sizes[axis]}: the graph has no free axis of that name"
    shapes = [(spec.resolve(sizes), np.dtype(spec.dtype).itemsize) for spec in signature.inputs]
    shapes += [(spec.resolve(sizes), 8) for spec in signature.outputs if _known(spec.shape, sizes)]
    needed = sum(size * prod(shape) for shape, size in shapes)
    if needed <= free:
        return None
    return f"inputs and outputs alone take {needed / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB are free"


def _known(shape: Iterable[int | str], sizes: Sizes) -> bool:
    """Whether the sizes tell a shape: an output may have an axis that depends on data."""
    names = (part.strip() for dim in shape if isinstance(dim, str) for part in dim.split("+"))
    return all(name in sizes for name in names)


@lru_cache(maxsize=1)
def _modules(folder: str) -> tuple[ExportedModel, PhaseModule, PhaseModule]:
    """An artifact with its source in its own precision and in float64, built once for all lengths."""
    artifact = ExportedModel.open(Path(folder))
    module = artifact.module()
    double = deepcopy(module).double()
    return artifact, in_precision(module, artifact.dtype), double


def distance(found: Array, truth: Array) -> float:
    """Largest difference in units of the rms of truth; infinite where shapes differ or a value is not finite."""
    if found.shape != truth.shape or not np.isfinite(found).all():
        return float("inf")
    scale = rms(truth)
    worst = float(np.abs(found - truth).max(initial=0.0))
    return worst / scale if scale > 0 else worst


def source_session(source: Source, phase: str, kind: str) -> SourceSession:
    """A source as one of `evaluation.SOURCES` says: as it is, in float64, or in float64 with rounded weights."""
    module = source.module(phase)
    half = HALVES.get(kind.partition("-")[2])
    return SourceSession(module if half is None else module.to(half), double=kind != "source")


class SourceSession:
    """A source model behind the face of a runtime's session, in its own precision or in float64."""

    def __init__(self, module: PhaseModule, *, double: bool) -> None:
        self._module = module
        self._run = outputs64 if double else outputs

    def stage(self, feeds: Feeds) -> Feeds:
        """As they are."""
        return feeds

    def run(self, staged: Feeds) -> dict[str, Array]:
        """One call."""
        return self._run(self._module, staged)

    def fetch(self, raw: dict[str, Array]) -> dict[str, Array]:
        """Outputs by name."""
        return raw

    def placement(self) -> Placement:
        """Eager torch, no graph."""
        return Placement(provider="torch cpu", nodes={}, precision="source", threads=1)

    def close(self) -> None:
        """Drop the module."""
        del self._module
