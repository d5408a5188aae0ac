"""The order of the checks: what is read before what is run, and what is run before what is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...export.machine import free_bytes
from ...export.source import Source, SourceError, parse
from ...models.signature import Array
from ...runtimes.reference_weights import skeleton
from ..client import WorkerError
from . import (
    behaviour,
    hints,
    integrity,
    invariants,
    locate,
    numerics,
    pairing,
    placement,
    quantisation,
    rulers,
    semantics,
    shapes,
    structure,
)
from . import inputs as given
from .candidate import Candidate, open_candidate
from .checker import Checker
from .evaluators import LARGE, Evaluators
from .finding import Finding, Refusal, Report, refuse, report, verdict

ARBITER_SHARE = 0.25  # of the free memory: float64 doubles the weights, and the graph holds values besides
NO_SOURCE = Source("file", "")


def validate(
    path: Path,
    *,
    reference: str | None = None,
    inputs: Path | None = None,
    expected: Path | None = None,
    runtimes: list[str] | None = None,
) -> Report:
    """Validate an exported model: an artifact's folder, an .onnx file, or an OpenVINO .xml with its inputs.

    `reference` is what it should be, as `export.source.parse` reads it: a preset ("gpt2", "gpt2@tiny"), "hf:FOLDER", a
    checkpoint's folder, "module:factory" or another .onnx; an artifact's own source by default.
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
    source = _source(reference, candidate, findings) if reference else _own_source(candidate, findings)
    with Checker() as checker:
        findings += structure.check(candidate, checker)
    weights = _weight_bytes(candidate)
    if weights > LARGE:  # the processes that evaluate it read the file themselves
        candidate = replace(candidate, proto=skeleton(candidate.proto))
    with _evaluators(candidate, source or NO_SOURCE, weights) as evaluators:
        if feeds is not None:
            judged = _on_inputs(candidate, evaluators, chosen, feeds, wanted, sourced=source is not None)
        else:
            judged = shapes.check(candidate, evaluators, chosen, sourced=source is not None)
            if any(finding.status in ("pass", "fail") for finding in judged):  # it runs
                judged += invariants.repeatable(candidate, evaluators, chosen[0])
                judged += behaviour.check(candidate, evaluators)
            if source is not None and quantisation.lossy(candidate):
                judged += quantisation.check(candidate, evaluators, shapes.typical(candidate))
            elif source is not None:
                judged = locate.explain(candidate, evaluators, judged, shapes.first(candidate, judged))
        findings += [*_tolerate(judged, asked), *placement.check(evaluators.placements)]


def _evaluators(candidate: Candidate, source: Source, weight_bytes: int) -> Evaluators:
    made = candidate.artifact
    return Evaluators(candidate.path, made.dtype, source, made.phase, session=made.session, weight_bytes=weight_bytes)


def _source(reference: str, candidate: Candidate, findings: list[Finding]) -> Source:
    """What a reference names, which is there; of another graph, how its names pair with the model's."""
    try:
        source = parse(reference)
    except SourceError as error:
        raise refuse(semantics.CHECK, f"--reference {error}") from None
    if source.kind == "file":
        other = open_candidate(Path(source.name))
        integrity.check(other)
        findings += pairing.check(candidate.signature, other.signature)
    return source


def _own_source(candidate: Candidate, findings: list[Finding]) -> Source | None:
    """The source that an artifact's manifest names. Code is never imported because a file says so."""
    source = candidate.artifact.source
    if source.kind in ("preset", "checkpoint", "hf"):
        return source
    if source.kind == "module":
        says = f"the manifest names {source.name} as the source; it is code, so it is not run unasked"
        remedy = f"if you trust it: --reference {source.name}"
        findings.append(Finding(check="semantics", status="note", says=says, remedy=remedy))
    return None


def _on_inputs(
    candidate: Candidate,
    evaluators: Evaluators,
    runtimes: list[str],
    feeds: Mapping[str, Array],
    expected: Mapping[str, Array] | None,
    *,
    sourced: bool,
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
    if not any(array.size for array in judged.values()):
        says = "every output is empty on these inputs, so nothing would be compared"
        raise refuse("semantics", says, "give inputs with a batch and a length")
    errors = {} if truth is None else numerics.errors(truth, plain)
    if expected is not None:
        units = partial(rulers.expected, candidate, own=errors)
        findings += semantics.against_expected(judged, expected, units)
    if sourced and truth is not None:
        findings += _against_source(candidate, evaluators, feeds, truth)
        findings += quantisation.check(candidate, evaluators, feeds) if quantisation.lossy(candidate) else []
    if truth is not None and artifact.dtype == "fp16":
        findings += numerics.strict_half(evaluators, feeds, truth)
    if not candidate.quantised:
        findings += numerics.check(evaluators, runtimes, feeds, judged, errors, artifact.dtype)
    findings += invariants.check(candidate, evaluators, runtimes[0], feeds)
    return hints.explain(candidate, feeds, expected, findings) if truth is not None else findings


def _against_source(
    candidate: Candidate, evaluators: Evaluators, feeds: Mapping[str, Array], truth: Mapping[str, Array]
) -> list[Finding]:
    try:
        source = evaluators.run("source64", feeds)
        wrong, rounded = semantics.against_source(candidate, evaluators, feeds, truth, source)
    except WorkerError as error:
        says = f"the source does not run on these inputs: {error}"
        return [Finding(check=semantics.CHECK, status="error", says=says)]
    if rounded:
        return [semantics.rounding([str(one) for one in rounded])]
    good = "graph and source are one function in float64"
    found = [verdict(semantics.CHECK, wrong, good, semantics.REMEDY)]
    lossy = quantisation.lossy(candidate)
    return locate.explain(candidate, evaluators, found, feeds) if wrong and not lossy else found


def _truth(
    candidate: Candidate, evaluators: Evaluators, feeds: Mapping[str, Array]
) -> tuple[dict[str, Array] | None, str]:
    """The outputs in float64, or why there are none."""
    weights = _weight_bytes(candidate)
    free = free_bytes()
    if 2 * weights > ARBITER_SHARE * free:
        return None, f"{weights / 2**30:.1f} GiB of weights are too much for it with {free / 2**30:.0f} GiB free"
    try:
        return evaluators.run("reference", feeds), ""
    except WorkerError as error:
        return None, str(error)


def _weight_bytes(candidate: Candidate) -> int:
    return sum(map(integrity.stored_bytes, candidate.proto.graph.initializer))


def _tolerate(findings: list[Finding], asked: list[str]) -> list[Finding]:
    """One runtime of several that refuses a model is worth a note, unless it was asked for or it crashed."""
    checks = (numerics.CHECK, shapes.CHECK)
    answered = any(f.check in checks and f.status in ("pass", "fail") for f in findings)
    if not answered or asked:
        return findings
    return [replace(f, status="note") if f.status == "error" and f.data.get("died") is False else f for f in findings]


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
        units = partial(rulers.single, own={})
        return semantics.against_expected(found, given.read(expected), units)
