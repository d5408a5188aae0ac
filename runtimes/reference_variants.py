"""Other readings of a graph, by the same evaluator: without quantisation's rounding, with exact constants, in half."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .base import Placement
from .reference import Float64Graph, Reference, ReferenceSession, mapped

if TYPE_CHECKING:
    from ..export.artifact import ExportedModel
    from ..models.signature import Array, Feeds


class StrictSession:
    """A graph in its own precision: every operator rounds to it."""

    def __init__(self, file: Path, dtype: str) -> None:
        from onnx.reference import ReferenceEvaluator

        with mapped(str(file)):
            self._evaluator = ReferenceEvaluator(str(file))
        self._dtype = dtype

    def stage(self, feeds: Feeds) -> Feeds:
        """As they are."""
        return feeds

    def run(self, staged: Feeds) -> list[Array]:
        """Evaluate the graph.

        Raises:
            RuntimeFailure: an operator fails.
        """
        with np.errstate(all="ignore"), mapped("the reference in its own precision"):
            return list(self._evaluator.run(None, dict(staged)))

    def fetch(self, raw: list[Array]) -> dict[str, Array]:
        """The outputs by name."""
        return dict(zip(self._evaluator.output_names, raw, strict=True))

    def placement(self) -> Placement:
        """Every node on the reference."""
        nodes = {"reference": len(self._evaluator.rt_nodes_)}
        return Placement(provider="reference", nodes=nodes, precision=self._dtype, threads=1)

    def close(self) -> None:
        """Free the graph."""
        del self._evaluator


class Sharp(Reference):
    """The ONNX reference evaluator in float64, with exact constants where the graph keeps rounded ones."""

    name = "reference-sharp"

    def prepare(self, artifact: ExportedModel, threads: int, *, optimise: bool = True) -> ReferenceSession:
        """Load and upcast a model; `threads` and `optimise` change nothing.

        Raises:
            RuntimeFailure: the model cannot be read, has no constant to sharpen, or an operator that is not known.
        """
        return ReferenceSession(Float64Graph(artifact.model_path, sharp=True))


class Ideal(Reference):
    """The ONNX reference evaluator in float64, without the rounding of quantised activations."""

    name = "reference-ideal"

    def prepare(self, artifact: ExportedModel, threads: int, *, optimise: bool = True) -> ReferenceSession:
        """Load and upcast a model; `threads` and `optimise` change nothing.

        Raises:
            RuntimeFailure: the model cannot be read, or has an operator that the reference lacks.
        """
        return ReferenceSession(Float64Graph(artifact.model_path, ideal=True))


class Strict(Reference):
    """The ONNX reference evaluator as it comes: in the graph's own precision, rounded after every operator."""

    name = "reference-strict"

    def prepare(self, artifact: ExportedModel, threads: int, *, optimise: bool = True) -> StrictSession:  # type: ignore[override]
        """Load a model; `threads` and `optimise` change nothing.

        Raises:
            RuntimeFailure: the model cannot be read, or has an operator that the reference lacks.
        """
        return StrictSession(artifact.model_path, artifact.dtype)


RUNTIMES = (Ideal(), Sharp(), Strict())
