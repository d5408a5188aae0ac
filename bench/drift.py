"""What another precision changes: how far a graph lies from its source, and what a runtime is held to.

A half-precision graph is held to its source, like a float32 one, with torch in the same half type as the ruler. A
quantised graph is another function by intention: a runtime is held to that graph itself in float64, and how far it has
drifted from its source is a verdict of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch

from ..export.artifact import ExportedModel
from ..export.distance import relative, rms
from ..models.phases import PhaseModule
from ..models.signature import Array, Feeds
from ..runtimes.reference import Float64Graph

CHECK = "drift"
HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}
TWICE = 2.0  # a graph may round in other places than its source does
ITSELF = 1.0  # of the output: a drift as large as the output leaves nothing of the function


def in_precision(module: PhaseModule, dtype: str) -> PhaseModule:
    """The source in the precision of an export: in half, or in float32, which it keeps beside a quantised graph."""
    return module.to(HALVES[dtype]) if dtype in HALVES else module


def drift(
    found: Mapping[str, Array], truth: Mapping[str, Array], rounded: Mapping[str, Array] | None
) -> dict[str, Any]:
    """The output that drifts most between graph and source, both in float64, and the limit.

    `rounded` are the outputs of the source with its weights rounded to half, which is what a half-precision graph may
    cost; without them the limit is that something of the function is left.
    """
    errors = relative(found, truth)
    allowed = {name: TWICE * error for name, error in relative(rounded, truth).items()} if rounded else {}
    limits = {name: allowed.get(name, ITSELF) for name in errors}
    worst = max(errors, key=lambda name: errors[name] / (limits[name] or 1.0))
    return {"check": CHECK, "output": worst, "distance": errors[worst], "limit": limits[worst]}


def rounded_source(module: PhaseModule) -> PhaseModule:
    """A half-precision source in float64: the weights keep their rounding, and nothing else is rounded."""
    return deepcopy(module).double()


def quantised_truth(artifact: ExportedModel, feeds: Feeds) -> tuple[dict[str, Array], dict[str, float]]:
    """The outputs of a quantised graph in float64, and of each the error of its quantised activations.

    Runtimes quantise activations in their own order and from values of their own rounding, so that two of them may lie
    on either side of the exact value; where a graph quantises weights alone that error is 0.
    """
    truth = Float64Graph(artifact.model_path).run(feeds)
    ideal = Float64Graph(artifact.model_path, ideal=True).run(feeds)
    return truth, {name: rms(ideal[name] - array) for name, array in truth.items()}
