"""Shapes: does every free axis take any size? Sizes on both sides of the usual, on inputs that the validator makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...models.signature import Array, Feeds, Padding
from ..client import WorkerDied, WorkerError
from . import declared, rulers, semantics
from . import feeds as made
from .candidate import Candidate
from .compare import Difference, difference
from .evaluators import Evaluators, Unloadable
from .finding import Finding
from .numerics import errors

CHECK = "shapes"
LENGTHS = (1, 2, 7, 33)
PASTS = (0, 1, 20)
APART = 3  # tokens between unequal lengths of an encoder and a decoder

Case = tuple[dict[str, int], Padding]


def grid(candidate: Candidate) -> list[Case]:
    """Sizes to try: batch 1 and 3, lengths below and above what was traced, with and without a past and padding."""
    axes = candidate.signature.axes
    pasts = PASTS if candidate.signature.cached else (0,)
    limit = min(
        (spec.limit for spec in candidate.signature.inputs if spec.name == made.POSITIONS and spec.limit), default=None
    )
    cases: list[tuple[int, Padding]] = [(1, "none"), (3, "left")]
    found = [
        (candidate.signature.sizes(batch=batch, length=length, past=past), padding)
        for length in LENGTHS
        for past in pasts
        for batch, padding in cases
        if limit is None or length + past <= limit
    ]
    return found if axes else [({}, "none")]


def _cases(candidate: Candidate, *, sourced: bool) -> list[Case]:
    """The grid; and an encoder and a decoder of unequal lengths, where a source can say whether the model has these."""
    signature = candidate.signature
    if not sourced or len(signature.lengths) < 2:
        return grid(candidate)
    return [
        *grid(candidate),
        (signature.sizes(batch=1, length=2, past=0, apart=APART), "none"),
        (signature.sizes(batch=3, length=7, past=PASTS[-1], apart=APART), "left"),
    ]


def _all_feeds(candidate: Candidate, cases: Sequence[Case]) -> Iterator[Feeds]:
    for sizes, padding in cases:
        with suppress(made.NoFeeds):  # it is raised again where they are asked for
            yield made.make(candidate.signature, sizes, padding=padding)


@dataclass
class Tally:
    """What was tried at many sizes, what was wrong, what was refused, and what makes further sizes pointless.

    `cases` has an answer for each: "same", "differs", "refused"; `first` is the first that was wrong; `rounded` is what
    constants in float32 explain; `unknown` are sizes at which the source has no answer.
    """

    tried: int = 0
    wrong: list[str] = field(default_factory=list)
    rounded: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    broken: WorkerError | None = None
    first: Case | None = None
    cases: list[dict[str, Any]] = field(default_factory=list)

    def add(self, case: Case, differences: Sequence[Difference] = (), rounded: Sequence[Difference] = ()) -> None:
        """Count one size and note its real differences."""
        self.tried += 1
        self.rounded += [f"{_words(case)}: {one}" for one in rounded]
        self._note(case, [str(one) for one in differences if one.real])

    def fail(self, case: Case, error: WorkerError) -> None:
        """Note a size that the source takes and the graph does not."""
        if isinstance(error, WorkerDied | Unloadable):
            self.broken = error
        else:
            self.tried += 1
            self._note(case, [f"the source takes it, the graph does not: {error}"])

    def refuse(self, case: Case, error: WorkerError) -> None:
        """Note a size that did not run."""
        if isinstance(error, WorkerDied | Unloadable):
            self.broken = error
        else:
            self.refused.append(f"{_words(case)}: {error}")
            self._answer(case, "refused")

    def skip(self, case: Case, error: WorkerError) -> None:
        """Note a size that the source does not take: nothing is known of the graph there."""
        if isinstance(error, WorkerDied | Unloadable):
            self.broken = error
        else:
            self.unknown.append(f"{_words(case)}: {error}")

    def _answer(self, case: Case, answer: str) -> None:
        self.cases.append({**case[0], "padding": case[1], "answer": answer})

    def _note(self, case: Case, wrong: list[str]) -> None:
        self._answer(case, "differs" if wrong else "same")
        self.wrong += [f"{_words(case)}: {one}" for one in wrong]
        if wrong and self.first is None:
            self.first = case


def check(candidate: Candidate, evaluators: Evaluators, runtimes: list[str], *, sourced: bool) -> list[Finding]:
    """Every size of the grid: graph against source, both in float64, and each runtime against the graph in float64.

    A graph that the float64 arbiter cannot evaluate is held to the first runtime without optimisations.
    """
    judge = _Judge(evaluators, runtimes[0])
    meaning, tallies = Tally(), {runtime: Tally() for runtime in runtimes}
    unlike: list[Finding] = []
    cases = _cases(candidate, sourced=sourced)
    whose = [*(("source64", "source") if sourced else ()), "reference", *runtimes]
    evaluators.ahead(whose, _all_feeds(candidate, cases))
    for case in cases:
        try:
            feeds = made.make(candidate.signature, case[0], padding=case[1])
        except WorkerError as error:
            meaning.refuse(case, error)
            continue
        try:
            source = evaluators.run("source64", feeds) if sourced else {}
            single = evaluators.run("source", feeds) if sourced else {}
        except WorkerError as error:
            meaning.skip(case, error)
            continue
        try:
            graph = judge.run(feeds)
        except WorkerError as error:
            (meaning.fail if sourced else meaning.refuse)(case, error)
            continue
        exact = judge.absent is None
        unlike = unlike or declared.check(candidate, case[0], graph)
        try:
            gaps = semantics.against_source(candidate, evaluators, feeds, graph, source, exact=exact) if sourced else ()
        except WorkerError as error:  # the source with its weights in half
            meaning.skip(case, error)
            continue
        meaning.add(case, *gaps)
        truth = graph if exact or not sourced else source
        allowed = rulers.runtime(candidate, evaluators, feeds, truth, errors(source, single))
        for runtime, tally in tallies.items():
            try:
                found = evaluators.run(runtime, feeds)
            except WorkerError as error:
                tally.refuse(case, error)
            else:
                tally.add(case, [difference(n, found.get(n), a, allowed[n]) for n, a in truth.items()])
    said = _source_findings(meaning, sourced, candidate.artifact.dtype)
    return [*judge.notes(), *unlike, *said, *_runtime_findings(tallies)]


def first(candidate: Candidate, findings: list[Finding]) -> Feeds | None:
    """The inputs on which graph and source were first found to differ, if they were."""
    for finding in findings:
        if finding.check == semantics.CHECK and finding.status == "fail":
            return made.make(candidate.signature, finding.data["sizes"], padding=finding.data["padding"])
    return None


def typical(candidate: Candidate) -> Feeds:
    """Inputs of the largest size, without padding."""
    return made.make(candidate.signature, grid(candidate)[-1][0])


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
        return [Finding(check=semantics.CHECK, status="note", says=f"no float64 truth: {self.absent}")]


def _source_findings(meaning: Tally, sourced: bool, dtype: str) -> list[Finding]:
    """Is it the same function, and does it run wherever its axes are free?"""
    if meaning.broken is not None:
        return [Finding(check=CHECK, status="error", says=f"nothing to compare with: {meaning.broken}")]
    if meaning.unknown and not meaning.tried:
        says = f"nothing to compare with: the source runs at no shape: {meaning.unknown[0]}"
        return [Finding(check=CHECK, status="error", says=says, remedy="give inputs that it takes with --inputs")]
    if not meaning.tried:
        reason = meaning.refused[0] if meaning.refused else "no shape to try"
        says = f"the model was never run: the validator found no inputs that it takes: {reason}"
        return [Finding(check=CHECK, status="error", says=says, remedy="give real ones with --inputs")]
    findings = []
    if sourced:
        extent = f", up to its {dtype}" if dtype != "fp32" else ""
        good = f"graph and source are one function in float64{extent}, at {meaning.tried} shapes"
        findings.append(_wrong(semantics.CHECK, "", meaning, good, semantics.REMEDY))
        findings += [semantics.rounding(meaning.rounded)] if meaning.rounded and not meaning.wrong else []
    if meaning.unknown:
        says = f"not compared at {len(meaning.unknown)} shapes, at which the source does not run: {meaning.unknown[0]}"
        findings.append(Finding(check=semantics.CHECK, status="note", says=says))
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
        elif tally.refused:
            says = f"{runtime} runs it at no shape: {tally.refused[0]}"
            findings.append(Finding(check=CHECK, status="error", says=says, data={"died": False}))
    return findings


def _wrong(check: str, whose: str, tally: Tally, good: str, remedy: str) -> Finding:
    if not tally.wrong:
        return Finding(check=check, status="pass", says=good, data={"of": whose.strip(": "), "cases": tally.cases})
    says = f"{whose}{len(tally.wrong)} differences over {tally.tried} shapes, first at {tally.wrong[0]}"
    sizes, padding = tally.first or ({}, "none")
    data = {"of": whose.strip(": "), "cases": tally.cases, "wrong": tally.wrong, "sizes": sizes, "padding": padding}
    return Finding(check=check, status="fail", says=says, remedy=remedy, data=data)


def _refused(whose: str, tally: Tally) -> list[Finding]:
    if not tally.refused:
        return []
    says = f"{whose}: {len(tally.refused)} shapes do not run although their axes are free: {tally.refused[0]}"
    return [Finding(check=CHECK, status="fail", says=says, data={"refused": tally.refused})]


def _words(case: Case) -> str:
    sizes, padding = case
    named = ", ".join(f"{axis} {size}" for axis, size in sorted(sizes.items())) or "the declared shape"
    return f"{named}, {padding} padding"
