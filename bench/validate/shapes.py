"""Shapes: does every free axis take any size? Sizes on both sides of the usual, on inputs that the validator makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...models.signature import Array, Padding
from ..client import WorkerDied, WorkerError
from . import feeds as made
from .candidate import Candidate
from .compare import SAME, Difference, K, difference, scale, unit
from .evaluators import Evaluators, Unloadable
from .finding import Finding
from .numerics import errors, quantised

CHECK = "shapes"
LENGTHS = (1, 2, 7, 33)
PASTS = (0, 1, 20)


def grid(candidate: Candidate) -> list[tuple[dict[str, int], Padding]]:
    """Sizes to try: batch 1 and 3, lengths below and above what was traced, with and without a past and padding."""
    axes = candidate.signature.axes
    pasts = PASTS if any("past" in axis for axis in axes) else (0,)
    limit = min(
        (spec.limit for spec in candidate.signature.inputs if spec.name == made.POSITIONS and spec.limit), default=None
    )
    cases: list[tuple[int, Padding]] = [(1, "none"), (3, "left")]
    found = [
        ({axis: _size(axis, batch, length, past) for axis in axes}, padding)
        for length in LENGTHS
        for past in pasts
        for batch, padding in cases
        if limit is None or length + past <= limit
    ]
    return found if axes else [({}, "none")]


@dataclass
class Tally:
    """What was tried at many sizes, what was wrong, what was refused, and what makes further sizes pointless."""

    tried: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    broken: WorkerError | None = None

    def add(self, words: str, differences: list[Difference]) -> None:
        """Count one size and note its real differences."""
        self.tried += 1
        self.wrong += [f"{words}: {one}" for one in differences if one.real]

    def fail(self, words: str, error: WorkerError) -> None:
        """Note a size that the source takes and the graph does not."""
        if isinstance(error, WorkerDied | Unloadable):
            self.broken = error
        else:
            self.tried += 1
            self.wrong.append(f"{words}: the source takes it, the graph does not: {error}")

    def refuse(self, words: str, error: WorkerError) -> None:
        """Note a size that did not run."""
        if isinstance(error, WorkerDied | Unloadable):
            self.broken = error
        else:
            self.refused.append(f"{words}: {error}")


def check(candidate: Candidate, evaluators: Evaluators, runtimes: list[str], *, sourced: bool) -> list[Finding]:
    """Every size of the grid: graph against source in float64, and each runtime against that.

    A graph that the float64 arbiter cannot evaluate is held to the first runtime without optimisations.
    """
    judge = _Judge(evaluators, runtimes[0])
    meaning, tallies = Tally(), {runtime: Tally() for runtime in runtimes}
    dtype = candidate.artifact.dtype
    for sizes, padding in grid(candidate):
        words = f"{_words(sizes)}, {padding} padding"
        try:
            feeds = made.make(candidate.signature, sizes, padding=padding)
            truth = evaluators.run("source64", feeds) if sourced else judge.run(feeds)
            single = evaluators.run("source", feeds) if sourced else {}
        except WorkerError as error:
            meaning.refuse(words, error)
            continue
        try:
            graph = judge.run(feeds) if sourced else truth
        except WorkerError as error:
            meaning.fail(words, error)
            continue
        allowed = _allowed(candidate, evaluators, feeds, truth, errors(truth, single))
        meaning.add(words, _meaning(graph, truth, dtype, exact=judge.absent is None))
        for runtime, tally in tallies.items():
            try:
                found = evaluators.run(runtime, feeds)
            except WorkerError as error:
                tally.refuse(words, error)
            else:
                tally.add(words, [difference(n, found.get(n), a, allowed[n]) for n, a in truth.items()])
    return [*judge.notes(), *_source_findings(meaning, sourced), *_runtime_findings(tallies)]


def _allowed(
    candidate: Candidate,
    evaluators: Evaluators,
    feeds: Mapping[str, Array],
    truth: Mapping[str, Array],
    own: Mapping[str, float],
) -> dict[str, float]:
    """The unit of rounding of each output. That of a quantised graph is the error of its quantisation.

    Runtimes round activations in their own order, so two of them may lie on either side of the exact value.
    """
    dtype = candidate.artifact.dtype
    rounding = {name: unit(own.get(name), array, dtype) for name, array in truth.items()}
    if not quantised(candidate.artifact.ops):
        return rounding
    exact = evaluators.run("reference-ideal", feeds)
    return {name: max(rounding[name], 2 * error / K) for name, error in errors(exact, truth).items()}


class _Judge:
    """The graph in float64; or on a runtime without optimisations, once the arbiter has refused it or died of it."""

    def __init__(self, evaluators: Evaluators, runtime: str) -> None:
        self._evaluators = evaluators
        self._runtime = runtime
        self.absent: WorkerError | None = None

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        if self.absent is None:
            try:
                return self._evaluators.run("reference", feeds)
            except (Unloadable, WorkerDied) as error:
                self.absent = error
        return self._evaluators.run(self._runtime, feeds, optimise=False)

    def notes(self) -> list[Finding]:
        if self.absent is None:
            return []
        return [Finding(check="semantics", status="note", says=f"no float64 truth: {self.absent}")]


def _meaning(graph: Mapping[str, Array], truth: Mapping[str, Array], dtype: str, *, exact: bool) -> list[Difference]:
    """The graph against its source: to the last digits in float64, else up to rounding."""
    return [
        difference(name, graph.get(name), array, SAME * scale(array) if exact else unit(None, array, dtype))
        for name, array in truth.items()
    ]


def _source_findings(meaning: Tally, sourced: bool) -> list[Finding]:
    """Is it the same function, and does it run wherever its axes are free?"""
    if meaning.broken is not None:
        return [Finding(check=CHECK, status="error", says=f"nothing to compare with: {meaning.broken}")]
    if not meaning.tried:
        reason = meaning.refused[0] if meaning.refused else "no shape to try"
        says = f"the validator found no inputs that the graph takes: {reason}"
        return [Finding(check=CHECK, status="skipped", says=says, remedy="give real ones with --inputs")]
    findings = []
    if sourced:
        good = f"graph and source are one function in float64 at {meaning.tried} shapes"
        remedy = "export it again; the export or the file is at fault"
        findings.append(_wrong("semantics", "", meaning, good, remedy))
    return [*findings, *_refused("the graph", meaning)]


def _runtime_findings(tallies: Mapping[str, Tally]) -> list[Finding]:
    """Does each runtime compute it? One that does not load the model is an error, which others may outweigh."""
    findings = []
    for runtime, tally in tallies.items():
        if tally.broken is not None:
            data = {"died": isinstance(tally.broken, WorkerDied)}
            findings.append(Finding(check=CHECK, status="error", says=f"{runtime}: {tally.broken}", data=data))
        if tally.tried:
            good = f"{runtime} agrees with float64 at {tally.tried} shapes"
            findings.append(_wrong(CHECK, f"{runtime}: ", tally, good, ""))
        findings += _refused(runtime, tally)
    return findings


def _wrong(check: str, whose: str, tally: Tally, good: str, remedy: str) -> Finding:
    if not tally.wrong:
        return Finding(check=check, status="pass", says=good)
    says = f"{whose}{len(tally.wrong)} differences over {tally.tried} shapes, first at {tally.wrong[0]}"
    return Finding(check=check, status="fail", says=says, remedy=remedy, data={"wrong": tally.wrong})


def _refused(whose: str, tally: Tally) -> list[Finding]:
    if not tally.refused:
        return []
    says = f"{whose}: {len(tally.refused)} shapes do not run although their axes are free: {tally.refused[0]}"
    return [Finding(check=CHECK, status="fail", says=says, data={"refused": tally.refused})]


def _size(axis: str, batch: int, length: int, past: int) -> int:
    name = axis.lower()
    if "batch" in name:
        return batch
    return past if "past" in name else length


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} {size}" for axis, size in sorted(sizes.items())) or "the declared shape"
