"""The order of the checks: what is read before what is run, and what is run before what is judged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil

from ...export.artifact import Source
from ...models.signature import Array
from ..client import WorkerError
from . import behaviour, integrity, invariants, numerics, placement, semantics, shapes, structure
from . import inputs as given
from .candidate import Candidate, open_candidate
from .evaluators import Evaluators
from .finding import Finding, Refusal, Report, refuse, report

ARBITER_SHARE = 0.25  # of the free memory: float64 doubles the weights, and the graph holds values besides


def validate(
    path: Path,
    *,
    reference: str | None = None,
    inputs: Path | None = None,
    expected: Path | None = None,
    runtimes: list[str] | None = None,
) -> Report:
    """Validate an exported model: an artifact's folder, an .onnx file, or an OpenVINO .xml with its inputs.

    `reference` is what it should be: a preset ("gpt2", "gpt2@small"), "module:factory", or another .onnx; an artifact's
    own source by default.
    `inputs` and `expected` are .npz files: arrays by input name, and arrays by output name (or one array for the first
    output), with an optional boolean array `compare_rows`. `runtimes` are names; by default every runtime here.
    """
    findings: list[Finding] = []
    try:
        _run(path, reference, inputs, expected, runtimes or [], findings)
    except Refusal as refusal:
        return report(str(path), [refusal.finding])
    return report(str(path), findings)


def _run(
    path: Path,
    reference: str | None,
    inputs: Path | None,
    expected: Path | None,
    asked: list[str],
    findings: list[Finding],
) -> None:
    chosen = placement.choose(asked)
    if path.suffix == ".xml":
        findings += _converted(path, inputs, expected)
        return
    candidate = open_candidate(path)
    findings += integrity.check(candidate)
    feeds = given.read(inputs) if inputs else None
    wanted = given.read(expected) if expected else None
    if feeds is not None:
        findings += given.check(candidate, feeds)
    findings += structure.check(candidate)
    source = _source(reference) if reference else candidate.artifact.source
    sourced = reference is not None or source.kind != "file"
    with Evaluators(candidate.path, candidate.artifact.dtype, source, _phase(candidate)) as evaluators:
        if feeds is not None:
            findings += _on_inputs(candidate, evaluators, chosen, feeds, wanted)
        else:
            findings += shapes.check(candidate, evaluators, chosen, sourced=sourced)
            findings += behaviour.check(candidate, evaluators)
        findings += placement.check(evaluators.placements)


def _source(reference: str) -> Source:
    """What a reference names."""
    if reference.endswith(".onnx"):
        if not Path(reference).is_file():
            raise refuse("semantics", f"--reference {reference}: no such file")
        return Source("file", str(Path(reference).resolve()))
    if ":" in reference:
        return Source("module", reference)
    name, _, size = reference.partition("@")
    return Source("preset", name, size or "full")


def _phase(candidate: Candidate) -> str:
    """The phase of the manifest, or what the names of a bare file tell."""
    past = any(spec.name.startswith("past_key_values") for spec in candidate.signature.inputs)
    return "step" if candidate.artifact.source.kind == "file" and past else candidate.artifact.phase


def _on_inputs(
    candidate: Candidate,
    evaluators: Evaluators,
    runtimes: list[str],
    feeds: Mapping[str, Array],
    expected: Mapping[str, Array] | None,
) -> list[Finding]:
    """All that can be asked about one set of inputs."""
    artifact = candidate.artifact
    truth, why = _truth(candidate, evaluators, feeds)
    try:
        plain = evaluators.run(runtimes[0], feeds, optimise=False)
    except WorkerError as error:
        if truth is None:
            raise refuse("semantics", f"the graph does not run on these inputs: {runtimes[0]}: {error}") from None
        plain = {}
    findings = [Finding(check="semantics", status="note", says=f"no float64 truth: {why}")] if truth is None else []
    judged = plain if truth is None else truth
    errors = {} if truth is None else numerics.errors(truth, plain)
    if expected is not None:
        findings += semantics.against_expected(judged, expected, artifact.dtype, errors)
    if truth is not None and artifact.dtype == "fp16":
        findings += numerics.strict_half(evaluators, feeds, truth)
    if not numerics.quantised(artifact.ops):
        findings += numerics.check(evaluators, runtimes, feeds, judged, errors, artifact.dtype)
    return [*_tolerate(findings), *invariants.check(candidate, evaluators, runtimes[0], feeds)]


def _truth(
    candidate: Candidate, evaluators: Evaluators, feeds: Mapping[str, Array]
) -> tuple[dict[str, Array] | None, str]:
    """The outputs in float64, or why there are none."""
    weights = sum(map(integrity.stored_bytes, candidate.proto.graph.initializer))
    free = psutil.virtual_memory().available
    if 2 * weights > ARBITER_SHARE * free:
        return None, f"{weights / 2**30:.1f} GiB of weights are too much for it with {free / 2**30:.0f} GiB free"
    try:
        return evaluators.run("reference", feeds), ""
    except WorkerError as error:
        return None, str(error)


def _tolerate(findings: list[Finding]) -> list[Finding]:
    """One runtime of several that refuses a model is worth a note; the others have answered."""
    answered = any(f.check == numerics.CHECK and f.status in ("pass", "fail") for f in findings)
    return [
        Finding(check=f.check, status="note", says=f.says) if answered and f.status == "error" and f.data else f
        for f in findings
    ]


def _converted(path: Path, inputs: Path | None, expected: Path | None) -> list[Finding]:
    """An OpenVINO model: its results against what is expected, the one question that can be put."""
    if not path.is_file():
        raise refuse("integrity", f"{path}: no such file")
    if inputs is None or expected is None:
        raise refuse("inputs", f"{path}: a converted model needs --inputs and --expected")
    with Evaluators(path, "fp32", Source("file", str(path)), "forward") as evaluators:
        try:
            found = evaluators.run("openvino", given.read(inputs))
        except WorkerError as error:
            raise refuse("numerics", str(error)) from None
        return semantics.against_expected(found, given.read(expected), "fp32", {})
