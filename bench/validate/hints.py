"""Hints: where a difference comes from, found by evaluating a changed copy of the graph in float64."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...export.external import is_external, messages
from ...export.source import Source
from ...models.signature import Array
from ..client import WorkerError
from . import rulers, semantics
from .candidate import Candidate
from .evaluators import Evaluators
from .finding import Finding

if TYPE_CHECKING:
    import onnx

ROPE = "RotaryEmbedding"
HINTED = ("semantics", "invariants")


def explain(
    candidate: Candidate, feeds: Mapping[str, Array], expected: Mapping[str, Array] | None, findings: list[Finding]
) -> list[Finding]:
    """The findings, with a remedy for those that fail without one, where a hint is found.

    A copy cannot reach weights in other files, so such a model gets no hints.
    """
    bare = [
        finding for finding in findings if finding.status == "fail" and finding.check in HINTED and not finding.remedy
    ]
    if not bare or any(map(is_external, candidate.tensors)):
        return findings
    hint = _first_nan(candidate, feeds) or _layout(candidate, feeds, expected)
    return [replace(finding, remedy=hint) if finding in bare else finding for finding in findings]


def _first_nan(candidate: Candidate, feeds: Mapping[str, Array]) -> str:
    """Which node makes the first NaN, of inputs that have none."""
    proto = _copy(candidate)
    shown = {output.name for output in proto.graph.output}
    for node in proto.graph.node:
        for name in node.output:
            if name and name not in shown:
                proto.graph.output.add(name=name)
    values = {**feeds, **_evaluate(candidate, proto, feeds)}
    spoilt = {name for name, array in values.items() if array.dtype.kind == "f" and np.isnan(array).any()}
    for node in proto.graph.node:
        if spoilt.intersection(node.output) and not spoilt.intersection(node.input):
            return f"the first NaN is made by {node.op_type} {node.name!r}, in {node.output[0]!r}"
    return ""


def _layout(candidate: Candidate, feeds: Mapping[str, Array], expected: Mapping[str, Array] | None) -> str:
    """Whether the difference goes away when rotary embeddings pair the numbers of a head in the other way."""
    if expected is None or all(node.op_type != ROPE for node in candidate.nodes):
        return ""
    proto = _copy(candidate)
    for node in messages(proto):
        if node.DESCRIPTOR.name == "NodeProto" and node.op_type == ROPE:
            _flip(node)
    found = _evaluate(candidate, proto, feeds)

    def units(truth: Mapping[str, Array]) -> dict[str, float]:
        return rulers.expected(candidate, truth, {})

    judged = semantics.against_expected(found, expected, units) if found else []
    if not judged or any(finding.status != "pass" for finding in judged):
        return ""
    return f"the difference goes away with the other RoPE layout: flip `interleaved` of {ROPE}"


def _flip(node: onnx.NodeProto) -> None:
    given = next((attribute for attribute in node.attribute if attribute.name == "interleaved"), None)
    if given is None:
        node.attribute.add(name="interleaved", type=2, i=1)  # AttributeProto.INT
    else:
        given.i = 1 - given.i


def _copy(candidate: Candidate) -> onnx.ModelProto:
    proto = type(candidate.proto)()
    proto.CopyFrom(candidate.proto)
    return proto


def _evaluate(candidate: Candidate, proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a changed copy in float64; none where it does not run."""
    with tempfile.TemporaryDirectory(prefix="isorun-") as folder:
        file = Path(folder) / "model.onnx"
        file.write_bytes(proto.SerializeToString())
        with Evaluators(file, candidate.artifact.dtype, Source("file", ""), "forward") as evaluators:
            try:
                return evaluators.run("reference", feeds)
            except WorkerError:
                return {}
