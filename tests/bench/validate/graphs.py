"""Small ONNX models by hand, and a validation that runs in this process: what the tests of the checks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from isorun.bench import evaluation
from isorun.bench.client import WorkerError
from isorun.bench.validate import integrity, walk
from isorun.bench.validate.candidate import Candidate, open_candidate
from isorun.bench.validate.evaluators import Unloadable
from isorun.bench.validate.finding import Finding, Refusal, Report
from isorun.export.source import Source
from isorun.runtimes.base import RuntimeFailure

Array = NDArray[Any]
Shape = Sequence[int | str | None]


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by spaces, "_" is an absent input."""
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[str, Shape]],
    outputs: Mapping[str, tuple[str, Shape]],
    constants: Mapping[str, Array] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    """A model; inputs and outputs map names to a NumPy dtype and a shape with free axes by name."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [_info(name, *spec) for name, spec in inputs.items()],
        [_info(name, *spec) for name, spec in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def linear(width: int = 8, *, seed: int = 0) -> onnx.ModelProto:
    """y = x·w, with free batch and sequence."""
    weight = np.random.default_rng(seed).standard_normal((width, width)).astype(np.float32)
    shape: Shape = ("batch", "sequence", width)
    return model([node("MatMul", "x w", "y")], {"x": ("float32", shape)}, {"y": ("float32", shape)}, {"w": weight})


def save(proto: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    """Write a model as one file."""
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def candidate(proto: onnx.ModelProto, folder: Path) -> Candidate:
    """A model as the checks get it."""
    return open_candidate(save(proto, folder))


def statuses(findings: Sequence[Finding] | Report, check: str | None = None) -> list[str]:
    """The statuses of all findings, or of those of one check."""
    found = findings.findings if isinstance(findings, Report) else findings
    return [finding.status for finding in found if check in (None, finding.check)]


def says(report: Report | Sequence[Finding], status: str = "fail") -> str:
    """What the findings of one status say, with their remedies."""
    found = report.findings if isinstance(report, Report) else report
    return "\n".join(f"{f.check}: {f.says} {f.remedy}" for f in found if f.status == status)


def softmax(x: Array) -> Array:
    """Over the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q: Array, k: Array, v: Array, bias: Array | float = 0.0) -> Array:
    """softmax(q·kᵀ/√d + bias)·v in float64."""
    q, k, v = (array.astype(float) for array in (q, k, v))
    return softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]) + bias) @ v


def hidden(mask: Array) -> Array:
    """The bias of a boolean mask."""
    return np.where(mask, 0.0, -np.inf)


def refusal(path: Path) -> str:
    """What reading a model and its integrity say against it; a failure where they say nothing."""
    with pytest.raises(Refusal) as caught:
        integrity.check(open_candidate(path))
    assert caught.value.finding.check == "integrity"
    assert caught.value.finding.status == "error"
    return str(caught.value)


class Local:
    """Has the face of `Evaluators`; every runtime runs in this process, without its limits."""

    def __init__(
        self, file: Path, dtype: str, source: Source, phase: str, *, session: Any = None, weight_bytes: int = 0
    ) -> None:
        self._opening = file, dtype, source, phase
        self._session = session or {}
        self._sessions: dict[tuple[str, bool], Any] = {}
        self.placements: dict[tuple[str, bool], Mapping[str, Any]] = {}

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ahead(self, runtimes: Any, feeds: Any) -> None:
        pass

    def run(
        self, runtime: str, feeds: Mapping[str, Array], *, optimise: bool = True, again: bool = False
    ) -> dict[str, Array]:
        key = runtime, optimise
        file, dtype, source, phase = self._opening
        try:
            if key not in self._sessions:
                self._sessions[key] = evaluation._open(file, dtype, runtime, optimise, source, phase, self._session)
        except RuntimeFailure as error:
            raise Unloadable(str(error)) from None
        session = self._sessions[key]
        try:
            results: dict[str, Array] = session.fetch(session.run(session.stage(feeds)))
        except RuntimeFailure as error:
            raise WorkerError(str(error)) from None
        return results

    def walk(self, feeds: Mapping[str, Array], opset: int) -> list[walk.Step]:
        file, _, source, phase = self._opening
        return walk.walk(str(file), source, phase, opset, feeds)


def local(given: Candidate, source: Source | None = None) -> Any:
    """`Local` for a candidate."""
    return Local(given.path, given.artifact.dtype, source or given.artifact.source, given.artifact.phase)


class LocalChecker:
    """Has the face of `Checker`."""

    def __enter__(self) -> LocalChecker:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def refusal(self, file: Path) -> str | None:
        return evaluation.refusal(str(file))


def _info(name: str, dtype: str, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))
