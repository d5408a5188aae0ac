"""Truth: the source model in float64, and what follows from it. This is the part of a worker that imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..export.artifact import ExportedModel
from ..export.exporter import export
from ..export.source import Source
from ..models.phases import PhaseModule
from ..models.signature import Array, Feeds
from ..runtimes.base import Placement
from ..runtimes.reference import Float64Graph, widen
from .subject import RULER, rms

SAME = 1e-9  # of the output's scale: far above float64 rounding, far below any real difference

# Where the source and the graph are compared: an odd length, more than one row, padding, some past.
PROBE = {"batch": 3, "sequence": 33, "past": 7, "source": 21}


def export_model(folder: str, source: dict[str, Any], phase: str) -> dict[str, Any]:
    """Export; answers the seconds that it took."""
    return {"seconds": export(Source(**source), phase, Path(folder)).seconds}


def same_function(folder: str) -> dict[str, Any]:
    """The largest distance over all outputs between graph and source, in units of each output's scale."""
    artifact = ExportedModel.open(Path(folder))
    most = artifact.limits.get("position_ids", PROBE["sequence"] + PROBE["past"])
    probe = {**PROBE, "sequence": min(PROBE["sequence"], most - PROBE["past"])}
    feeds = artifact.signature().feeds(probe, padding="left")
    truth = outputs64(artifact.module(), feeds)
    graph = Float64Graph(artifact.model_path).run(feeds)
    distances = {name: distance(graph[name], array) for name, array in truth.items()}
    worst = max(distances, key=lambda name: distances[name])
    return {"output": worst, "distance": distances[worst], "limit": SAME, "probe": probe}


def write(folder: str, sizes: dict[str, int], file: str) -> dict[str, Any]:
    """Write the float64 outputs of one case, each with its ruler: the error of torch in the export's own dtype.

    The ruler is at least the error of rounding truth itself to that dtype: no runtime can do better.
    """
    artifact = ExportedModel.open(Path(folder))
    feeds = artifact.signature().feeds(sizes)
    module = artifact.module()
    single = outputs(module, feeds)
    truth = outputs64(module, feeds)
    rulers = {
        RULER + name: max(rms(single[name] - array), rms(array.astype(single[name].dtype) - array))
        for name, array in truth.items()
    }
    np.savez(file, **truth, **rulers)  # type: ignore[arg-type]
    return {"file": file}


def outputs(module: PhaseModule, feeds: Feeds) -> dict[str, Array]:
    """The module's outputs by name, in its own dtype."""
    tensors = [torch.tensor(feeds[spec.name]) for spec in module.signature.inputs]
    with torch.inference_mode():
        results = module(*tensors)
    return {spec.name: tensor.numpy() for spec, tensor in zip(module.signature.outputs, results, strict=True)}


def outputs64(module: PhaseModule, feeds: Feeds) -> dict[str, Array]:
    """The outputs with weights and inputs in float64; the module itself is turned into float64."""
    return outputs(module.double(), widen(feeds))


def distance(found: Array, truth: Array) -> float:
    """Largest difference in units of the rms of truth; infinite where shapes differ or a value is not finite."""
    if found.shape != truth.shape or not np.isfinite(found).all():
        return float("inf")
    scale = rms(truth)
    worst = float(np.abs(found - truth).max(initial=0.0))
    return worst / scale if scale > 0 else worst


class SourceSession:
    """A source model behind the face of a runtime's session, in its own precision or in float64."""

    def __init__(self, source: Source, phase: str, *, double: bool) -> None:
        self._module = source.module(phase)
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
