"""The certificate: does validation find every planted fault that changes the function, and what do usual checks say?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ..export.artifact import ExportedModel
from ..models.signature import Array, Padding
from ..runtimes.base import RuntimeFailure
from ..runtimes.reference import Float64Graph
from . import mutations
from .client import WorkerError
from .truth import SAME, distance, outputs, outputs64
from .validate import behaviour, shapes, structure
from .validate.candidate import Candidate

USUAL = (1e-3, 1e-4, 1e-5)  # the tolerances of numpy.allclose that tools of the field use, at the exporter's own size

# Where a fault may show: other sizes, seeds and paddings than the validator's own grid.
ROWS: tuple[tuple[int, Padding], ...] = ((1, "none"), (4, "left"))
WIDE = [
    (n, batch, past, padding)
    for n, past in ((1, 0), (1, 3), (3, 16), (5, 31), (16, 0), (17, 1), (20, 15), (40, 0))
    for batch, padding in ROWS
]


@dataclass(frozen=True)
class Mutant:
    """One planted fault: how far it is from the unmutated graph in float64, and who finds it.

    `usual` holds for each tolerance of USUAL whether `numpy.allclose` at the exporter's own size fails the mutant.
    """

    kind: str
    distance: float
    found: bool
    says: str
    usual: tuple[bool, ...]

    @property
    def equivalent(self) -> bool:
        """It does not change the function, so it does not count."""
        return self.distance <= SAME


def columns(mutant: Mutant) -> dict[str, Any]:
    """A mutant as a row of a table."""
    usual = {
        f"allclose {tolerance:g}": "found" if found else "missed"
        for tolerance, found in zip(USUAL, mutant.usual, strict=True)
    }
    verdict = "equivalent" if mutant.equivalent else "found" if mutant.found else "missed"
    return {"fault": mutant.kind, "distance": f"{mutant.distance:.1e}", "validate": verdict, **usual}


class Inline:
    """Stands in for the runtimes of a validation, in this process: the arbiter on a mutant, and the source."""

    def __init__(self, model: onnx.ModelProto, artifact: ExportedModel, memory: dict[str, dict[str, Array]]) -> None:
        self._graph: Float64Graph | None = None
        self._session: Any = None
        self._model = model
        self._artifact = artifact
        self._memory = memory

    def run(self, runtime: str, feeds: Mapping[str, Array], *, optimise: bool = True) -> dict[str, Array]:
        """As `Evaluators.run`."""
        if runtime == "reference":
            return self._reference(feeds)
        if runtime == "ort-cpu":
            return self._ort(feeds)
        key = runtime + _key(feeds)
        if key not in self._memory:
            evaluate = {"source": outputs, "source64": outputs64}[runtime]
            self._memory[key] = evaluate(self._artifact.module(), feeds)
        return self._memory[key]

    def _reference(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            self._graph = self._graph or Float64Graph(self._model)
            return self._graph.run(feeds)
        except RuntimeFailure as error:
            raise WorkerError(str(error)) from None

    def _ort(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            self._session = self._session or ort_session(self._model)
            wanted = {entry.name for entry in self._session.get_inputs()}
            names = [entry.name for entry in self._session.get_outputs()]
            results = self._session.run(names, {name: array for name, array in feeds.items() if name in wanted})
        except Exception as error:  # onnxruntime's exceptions share no base class below Exception
            raise WorkerError(" ".join(str(error).split())[:200]) from None
        return dict(zip(names, results, strict=True))


def ort_session(model: onnx.ModelProto) -> Any:
    """ONNX Runtime on one thread of the CPU; it says nothing itself, failures arrive as exceptions."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def certify(folder: Path, seed: int = 0) -> Iterator[Mutant]:
    """Plant every kind of fault that has a place in an exported model, and see who finds it."""
    artifact = ExportedModel.open(folder)
    model = onnx.load(artifact.model_path)
    truth = Float64Graph(model)
    memory: dict[str, dict[str, Array]] = {}
    for kind in mutations.kinds():
        mutant = mutations.apply(kind, model, seed)
        if mutant is not None:
            far = _distance(artifact, truth, mutant)
            found, says = _found(artifact, mutant, memory)
            yield Mutant(kind, far, found, says, _usual(artifact, mutant))


def _distance(artifact: ExportedModel, truth: Float64Graph, mutant: onnx.ModelProto) -> float:
    """The largest distance from the unmutated graph over the wide grid; infinite where the mutant does not run."""
    declared = artifact.signature()
    limit = artifact.limits.get("position_ids", 10**9)
    try:
        graph = Float64Graph(mutant)
        far = 0.0
        for n, batch, past, padding in WIDE:
            sizes = {"batch": batch, "sequence": n, "past": past, "source": n + 1}
            if n + past <= limit:
                feeds = declared.feeds(sizes, seed=97 * n + past, padding=padding)
                expected, found = truth.run(feeds), graph.run(feeds)
                far = max(far, *(distance(found[name], array) for name, array in expected.items()))
    except RuntimeFailure:
        return float("inf")
    return far


def _found(artifact: ExportedModel, mutant: onnx.ModelProto, memory: dict[str, dict[str, Array]]) -> tuple[bool, str]:
    """The validator's own checks on the mutant, and what the first that fails says."""
    candidate = Candidate(artifact.model_path, mutant, artifact)
    inline: Any = Inline(mutant, artifact, memory)
    findings = [
        *shapes.check(candidate, inline, ["ort-cpu"], sourced=True),
        *behaviour.check(candidate, inline),
        *structure.live_dropout(candidate),
    ]
    failed = next((finding for finding in findings if finding.status == "fail"), None)
    return failed is not None, failed.says if failed else ""


def _usual(artifact: ExportedModel, mutant: onnx.ModelProto) -> tuple[bool, ...]:
    """What `numpy.allclose` against torch in float32 says, on one input of the exporter's own size."""
    module = artifact.module()
    feeds = artifact.signature().feeds(module.example)
    truth = outputs(module, feeds)
    try:
        found = Inline(mutant, artifact, {}).run("ort-cpu", feeds)
    except WorkerError:
        return (True,) * len(USUAL)  # a mutant that does not run is found by anyone
    return tuple(
        not all(
            found[name].shape == array.shape and np.allclose(found[name], array, rtol=tolerance, atol=tolerance)
            for name, array in truth.items()
        )
        for tolerance in USUAL
    )


def _key(feeds: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    for name, array in feeds.items():
        digest.update(repr((name, array.shape)).encode() + array.tobytes())
    return digest.hexdigest()
