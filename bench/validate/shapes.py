"""Shapes: does every free axis take any size? Sizes on both sides of the usual, on inputs that the validator makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...models.signature import Array, Padding, Signature
from ..client import WorkerError
from ..subject import rms
from .candidate import Candidate
from .compare import Difference, difference, unit
from .evaluators import Evaluators
from .finding import Finding
from .inputs import table_rows
from .numerics import errors

CHECK = "shapes"
LENGTHS = (1, 2, 7, 33)
PASTS = (0, 1, 20)
SAME = 1e-10  # of the scale, as a unit of rounding: ten of them, 1e-9, separate one function from another


def signature(candidate: Candidate) -> Signature:
    """The declared signature, with the id limits that the graph's own tables show."""
    graph = candidate.proto.graph
    inputs = (replace(spec, limit=spec.limit or table_rows(graph, spec.name)) for spec in candidate.signature.inputs)
    return Signature(tuple(inputs), candidate.signature.outputs)


def grid(candidate: Candidate) -> list[tuple[dict[str, int], Padding]]:
    """Sizes to try: batch 1 and 3, lengths below and above what was traced, with and without a past and padding."""
    axes = candidate.signature.axes
    pasts = PASTS if any("past" in axis for axis in axes) else (0,)
    limit = min(
        (spec.limit for spec in candidate.signature.inputs if spec.name == "position_ids" and spec.limit), default=None
    )
    found: list[tuple[dict[str, int], Padding]] = []
    for length in LENGTHS:
        for past in pasts:
            for batch, padding in ((1, "none"), (3, "left")):
                sizes = {axis: _size(axis, batch, length, past) for axis in axes}
                if limit is None or length + past <= limit:
                    found.append((sizes, padding))  # type: ignore[arg-type]
    return found if axes else [({}, "none")]


def check(candidate: Candidate, evaluators: Evaluators, runtimes: list[str], *, sourced: bool) -> list[Finding]:
    """Every size of the grid: graph against source in float64, and each runtime against that; one finding for each."""
    declared = signature(candidate)
    meaning = Tally()
    rounding = Tally()
    for sizes, padding in grid(candidate):
        feeds = declared.feeds(sizes, padding=padding)
        words = f"{_words(sizes)}, {padding} padding"
        try:
            graph = evaluators.run("reference", feeds)
            truth = evaluators.run("source64", feeds) if sourced else graph
            single = evaluators.run("source", feeds) if sourced else {}
        except WorkerError as error:
            meaning.refused.append(f"{words}: {error}")
            continue
        meaning.add(words, [difference(n, graph.get(n), array, SAME * rms(array)) for n, array in truth.items()])
        own = errors(truth, single)
        for runtime in runtimes:
            _judge(evaluators, runtime, feeds, truth, own, candidate.artifact.dtype, f"{runtime} at {words}", rounding)
    return _findings(meaning, rounding, sourced)


@dataclass
class Tally:
    """What was tried at many sizes, and what was wrong."""

    tried: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def add(self, words: str, differences: list[Difference]) -> None:
        """Count one size and note its real differences."""
        self.tried += 1
        self.wrong += [f"{words}: {one}" for one in differences if one.real]


def _judge(
    evaluators: Evaluators,
    runtime: str,
    feeds: Mapping[str, Array],
    truth: Mapping[str, Array],
    own: Mapping[str, float],
    dtype: str,
    words: str,
    tally: Tally,
) -> None:
    try:
        found = evaluators.run(runtime, feeds)
    except WorkerError as error:
        tally.wrong.append(f"{words}: {error}")
        return
    tally.add(words, [difference(n, found.get(n), a, unit(own.get(n), rms(a), dtype)) for n, a in truth.items()])


def _findings(meaning: Tally, rounding: Tally, sourced: bool) -> list[Finding]:
    """First whether it is the same function, then whether the runtimes compute it."""
    if not meaning.tried:
        reason = meaning.refused[0] if meaning.refused else "nothing to try"
        says = f"the validator found no inputs that the graph takes: {reason}"
        return [Finding(check=CHECK, status="skipped", says=says, remedy="give real ones with --inputs")]
    findings = []
    if sourced:
        good = f"graph and source are one function in float64 at {meaning.tried} shapes"
        findings.append(_finding("semantics", meaning, good, "export it again; the export or the file is at fault"))
    findings.append(_finding(CHECK, rounding, f"runtimes agree with float64 at {rounding.tried} shapes", ""))
    if meaning.refused:
        says = f"{len(meaning.refused)} shapes do not run although their axes are free: {meaning.refused[0]}"
        findings.append(Finding(check=CHECK, status="fail", says=says, data={"refused": meaning.refused}))
    return findings


def _finding(check: str, tally: Tally, good: str, remedy: str) -> Finding:
    if not tally.wrong:
        return Finding(check=check, status="pass", says=good)
    says = f"{len(tally.wrong)} differences over {tally.tried} shapes, first at {tally.wrong[0]}"
    return Finding(check=check, status="fail", says=says, remedy=remedy, data={"wrong": tally.wrong})


def _size(axis: str, batch: int, length: int, past: int) -> int:
    name = axis.lower()
    if "batch" in name:
        return batch
    return past if "past" in name else length


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} {size}" for axis, size in sorted(sizes.items())) or "the declared shape"
