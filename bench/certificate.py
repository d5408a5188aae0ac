"""The certificate: does validation find every planted fault that changes the function, and what do usual checks say?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ..export.artifact import ExportedModel
from ..export.outputs import outputs, outputs64
from ..models.signature import Array, Padding
from ..runtimes.base import RuntimeFailure
from ..runtimes.reference import Float64Graph
from . import mutations
from .client import WorkerError
from .truth import SAME, distance
from .validate import behaviour, locate, shapes, structure, walk
from .validate.candidate import Candidate
from .validate.finding import Finding
from .validate.memory import digest
from .validate.program import Program

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

    `usual` holds for each tolerance of USUAL whether `numpy.allclose` at the exporter's own size fails the mutant;
    `named` is "node" where the first value that differs is made by a node that the fault touched, or by one that reads
    its output, "operator" where it is the last of several nodes that one operator of the source was exported as, and
    the fault touched another of them, else "other", or "none" where no value was named.
    """

    kind: str
    distance: float
    found: bool
    says: str
    usual: tuple[bool, ...]
    named: str

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
    return {
        "fault": mutant.kind,
        "distance": f"{mutant.distance:.1e}",
        "validate": verdict,
        "names": mutant.named,
        **usual,
    }


class Sources:
    """The source in its own precision and in float64, with what it answered before."""

    def __init__(self, artifact: ExportedModel) -> None:
        self._modules = {"source": artifact.module(), "source64": artifact.module().double()}
        self._memory: dict[str, dict[str, Array]] = {}

    def run(self, kind: str, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name."""
        key = digest(feeds, kind)
        if key not in self._memory:
            evaluate = {"source": outputs, "source64": outputs64}[kind]
            self._memory[key] = evaluate(self._modules[kind], feeds)
        return self._memory[key]


class Inline:
    """Stands in for the runtimes of a validation, in this process: the arbiter on a mutant, and the source."""

    def __init__(self, model: onnx.ModelProto, sources: Sources) -> None:
        self._graphs: dict[str, Float64Graph] = {}
        self._session: Any = None
        self._model = model
        self._sources = sources

    def ahead(self, runtimes: Iterable[str], feeds: Iterable[Mapping[str, Array]]) -> None:
        """As `Evaluators.ahead`."""

    def run(self, runtime: str, feeds: Mapping[str, Array], *, optimise: bool = True) -> dict[str, Array]:
        """As `Evaluators.run`."""
        if runtime.startswith("reference"):
            return self._reference(runtime, feeds)
        if runtime == "ort-cpu":
            return self._ort(feeds)
        return self._sources.run(runtime, feeds)

    def _reference(self, runtime: str, feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            if runtime not in self._graphs:
                ideal, sharp = (runtime == f"reference-{kind}" for kind in ("ideal", "sharp"))
                self._graphs[runtime] = Float64Graph(self._model, ideal=ideal, sharp=sharp)
            return self._graphs[runtime].run(feeds)
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


class Certificate:
    """One exported model with all that its mutants are held against, each computed once and only if it is needed."""

    def __init__(self, folder: Path) -> None:
        """Load the graph and its source.

        Raises:
            ArtifactError: there is no exported model.
        """
        self.artifact = ExportedModel.open(folder)
        self.model = onnx.load(self.artifact.model_path)
        self._sources = Sources(self.artifact)

    @cached_property
    def _program(self) -> Program:
        return Program(self.artifact.source, self.artifact.phase, self.artifact.opset)

    @cached_property
    def _wide(self) -> list[tuple[dict[str, Array], dict[str, Array]]]:
        return list(self._wide_truths())

    @cached_property
    def _usual_case(self) -> tuple[dict[str, Array], dict[str, Array]]:
        module = self.artifact.module()
        feeds = self.artifact.signature().feeds(module.example)
        return feeds, outputs(module, feeds)

    def findings(self, model: onnx.ModelProto) -> list[Finding]:
        """What the validator's own checks say of a version of the graph."""
        candidate = Candidate(self.artifact.model_path, model, self.artifact)
        inline: Any = Inline(model, self._sources)
        return [
            *shapes.check(candidate, inline, ["ort-cpu"], sourced=True),
            *behaviour.check(candidate, inline),
            *structure.live_dropout(candidate),
        ]

    def mutant(self, kind: str, seed: int = 0) -> Mutant | None:
        """Plant one kind of fault, and see who finds it; None where it has no place.

        Raises:
            ExportError: the source cannot be traced any more.
        """
        mutant = mutations.apply(kind, self.model, seed)
        if mutant is None:
            return None
        findings = self.findings(mutant)
        failed = next((finding for finding in findings if finding.status == "fail"), None)
        says = failed.says if failed else ""
        far, named = self._distance(mutant), self._named(mutant, findings)
        return Mutant(kind, far, failed is not None, says, self._usual(mutant), named)

    def _named(self, mutant: onnx.ModelProto, findings: list[Finding]) -> str:
        """Whether the first value that differs is of a node that the fault touched, or of a direct consumer."""
        feeds = shapes.first(Candidate(self.artifact.model_path, mutant, self.artifact), findings)
        step = locate.first(walk.against(mutant, self._program, feeds)) if feeds is not None else None
        if step is None:
            return "none"
        touched = mutations.touched(self.model, mutant)
        node = next(node for node in mutant.graph.node if step.value in node.output)
        if step.value in touched or touched.intersection(node.input):
            return "node"
        return "operator" if touched.intersection(step.within) else "other"

    def _wide_truths(self) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        truth = Float64Graph(self.model)
        limit = self.artifact.limits.get("position_ids", 10**9)
        declared = self.artifact.signature()
        for n, batch, past, padding in WIDE:
            if n + past <= limit:
                sizes = {"batch": batch, "sequence": n, "past": past, "source": n + 1}
                feeds = declared.feeds(sizes, seed=97 * n + past, padding=padding)
                yield feeds, truth.run(feeds)

    def _distance(self, mutant: onnx.ModelProto) -> float:
        """How far it is from the unmutated graph where it first differs; infinite where it does not run."""
        far = 0.0
        try:
            graph = Float64Graph(mutant)
            for feeds, expected in self._wide:
                found = graph.run(feeds)
                far = max(far, *(distance(found[name], array) for name, array in expected.items()))
                if far > SAME:
                    break
        except RuntimeFailure:
            return float("inf")
        return far

    def _usual(self, mutant: onnx.ModelProto) -> tuple[bool, ...]:
        """What `numpy.allclose` against torch in float32 says, on one input of the exporter's own size."""
        feeds, truth = self._usual_case
        try:
            found = Inline(mutant, self._sources).run("ort-cpu", feeds)
        except WorkerError:
            return (True,) * len(USUAL)  # a mutant that does not run is found by anyone
        return tuple(
            not all(
                found[name].shape == array.shape and np.allclose(found[name], array, rtol=tolerance, atol=tolerance)
                for name, array in truth.items()
            )
            for tolerance in USUAL
        )


def certify(folder: Path, seed: int = 0) -> Iterator[Mutant]:
    """Plant every kind of fault that has a place in an exported model, and see who finds it."""
    certificate = Certificate(folder)
    for kind in mutations.kinds():
        mutant = certificate.mutant(kind, seed)
        if mutant is not None:
            yield mutant
