"""Records in the order of a report: one group per model and phase, one line per runtime, what may be shown of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from ..bench.fairness import refusal
from ..bench.growth import Growth, grow
from ..bench.records import PARITY_LIMIT, Case, Measurement, OutputError, Run, Verdict
from ..bench.timing import Comparison, compare
from ..bench.twins import Spread, spread
from .document import Tone
from .format import number

BASE = "torch"  # the runtime that speed-ups are measured against
SAME_FUNCTION = "same function"  # the check that compares graph and source, both in float64
DRIFT = "drift"  # the same of a graph that another precision changed on purpose, with the limit that it allows
SPEED_TONES: Mapping[str, Tone] = {"faster": "good", "slower": "bad", "same": "plain", "cannot tell": "unsure"}
PHASES = {"forward": "forward", "step": "decode step", "encode": "encode"}


@dataclass(frozen=True)
class Group:
    """One model in one phase: its measurements by runtime, each line in order of n. `index` is its place in the run.

    `spread` is what two processes of the same code differ by in this run; None where it had no control.
    """

    index: int
    model: str
    size: str
    phase: str
    dtype: str
    batch: int
    label: str
    lines: Mapping[str, tuple[Measurement, ...]]
    spread: Spread | None = None

    @property
    def name(self) -> str:
        """Model and size."""
        return f"{self.model} @ {self.size}" if self.size else self.model

    @property
    def title(self) -> str:
        """Model, size and phase."""
        return f"{self.name}, {self.label}"

    @property
    def lengths(self) -> tuple[int, ...]:
        """Every n of any line, in order."""
        return tuple(sorted({m.case.length for line in self.lines.values() for m in line}))

    @property
    def timed(self) -> tuple[int, ...]:
        """Every n of which some time may be shown, in order."""
        return tuple(sorted({m.case.length for runtime in self.lines for m in self.shown(runtime)}))

    def shown(self, runtime: str) -> tuple[Measurement, ...]:
        """The measurements of a runtime whose times may be shown."""
        return tuple(m for m in self.lines.get(runtime, ()) if m.median_ns and untimed(m) is None)

    def compared(self, base: Measurement, other: Measurement) -> Comparison:
        """How much faster `other` is than `base`, its interval with what two processes differ by anyway."""
        apart = self.spread.apart if self.spread else 0.0
        return compare(base.block_medians_ns, other.block_medians_ns, apart=apart)

    def curve(self, runtime: str) -> tuple[Measurement, ...]:
        """Those of them that have a place on a logarithmic axis: an empty past has none."""
        return tuple(m for m in self.shown(runtime) if m.case.length > 0)


def groups(run: Run) -> tuple[Group, ...]:
    """The run's measurements by model and phase, in the order in which the models were first measured.

    A case that was measured twice (a resumed run) counts once, by its last record.
    """
    last = {m.case: m for m in run.measurements}
    ranks = {key: rank for rank, key in enumerate(dict.fromkeys((c.model, c.size) for c in last))}
    members: dict[tuple[object, ...], list[Measurement]] = {}
    for m in last.values():
        members.setdefault(_key(m.case), []).append(m)
    varied = {axis for axis in ("dtype", "batch") if len({getattr(case, axis) for case in last}) > 1}
    made = [_group(found, varied) for found in members.values()]
    made.sort(key=lambda group: (ranks[group.model, group.size], group.phase != "forward"))
    between = spread(last.values())
    return tuple(replace(group, index=index, spread=between) for index, group in enumerate(made))


def facets(run: Run) -> tuple[Mapping[str, str], ...]:
    """What each group can be chosen by."""
    return tuple(
        {
            "model": group.name,
            "phase": PHASES.get(group.phase, group.phase),
            "batch": str(group.batch),
            "dtype": group.dtype,
        }
        for group in groups(run)
    )


def runtimes(run: Run) -> tuple[str, ...]:
    """The runtimes that have a record, the base of the speed-ups first."""
    return tuple(sorted(dict.fromkeys(m.case.runtime for m in run.measurements), key=lambda name: name != BASE))


def tried(run: Run) -> tuple[str, ...]:
    """Those of them that were put to work; one that is not installed has nothing but skipped cases."""
    names = runtimes(run)
    working = {m.case.runtime for m in run.measurements if m.status != "skipped"}
    return tuple(name for name in names if name in working) or names


def untimed(m: Measurement) -> str | None:
    """Why a case shows no time: its own reason, or wrong outputs; None when it shows one or never had any."""
    if m.status != "ok":
        return m.reason or "no reason recorded"
    if m.median_ns is None:
        return None
    return objection(m) if min(m.block_medians_ns) > 0 else "a recorded time is not positive: time not shown"


def worst(m: Measurement) -> OutputError | None:
    """The output that is furthest from float64, in units of the reference's rounding; None when none was compared."""
    return max(m.errors, key=distance, default=None)


def distance(error: OutputError) -> float:
    """Error of an output in units of the reference's rounding; infinite when it cannot be compared."""
    return math.inf if error.ratio is None or math.isnan(error.ratio) else error.ratio


def objection(m: Measurement) -> str | None:
    """Why the time of a measurement must not be shown; None when its outputs were verified."""
    error = worst(m)
    if error is None:
        return "outputs not checked: time not shown"
    if distance(error) <= PARITY_LIMIT:
        return None
    why = error.detail or f"error {number(distance(error))} times torch's own rounding, limit {number(PARITY_LIMIT, 1)}"
    return f"outputs wrong: time not shown ({error.name}: {why})"


def speeds(group: Group, runtime: str) -> dict[int, Comparison]:
    """Speed over the base runtime at each n where both times may be shown, and compared."""
    if runtime == BASE:
        return {}
    base = {m.case.length: m for m in group.shown(BASE)}
    return {
        m.case.length: group.compared(base[m.case.length], m)
        for m in group.shown(runtime)
        if m.case.length in base and refusal(base[m.case.length], m) is None
    }


def refusals(run: Run) -> tuple[str, ...]:
    """Why some times are not compared with the base's: each reason once."""
    pairs = (
        (base, m)
        for group in groups(run)
        for base in group.shown(BASE)
        for runtime in group.lines
        for m in group.shown(runtime)
        if m.case.length == base.case.length and runtime != BASE
    )
    return tuple(dict.fromkeys(reason for base, m in pairs if (reason := refusal(base, m))))


def growth(group: Group, runtime: str) -> Growth | None:
    """The law of one line and how it grows; None when its verified times are too few to fit."""
    line = group.curve(runtime)
    work = tuple(m.work for m in line if m.work)
    try:
        return _grow(
            tuple(m.case.length for m in line),
            tuple(m.block_medians_ns for m in line),
            work if len(work) == len(line) else None,
        )
    except ValueError:
        return None


def verdict_of(run: Run, group: Group) -> Verdict | None:
    """The last answer to "does the graph compute the same function as its source?" for one group."""
    return faithful(run).get((group.model, group.size, group.phase, group.dtype))


def faithful(run: Run) -> dict[tuple[str, str, str, str], Verdict]:
    """The last answer to that question by model, size, phase and dtype."""
    return {(v.model, v.size, v.phase, v.dtype): v for v in run.verdicts if v.check in (SAME_FUNCTION, DRIFT)}


def worded(comparison: Comparison) -> str:
    """The word of a comparison; "same" with the difference that it still allows."""
    return f"same within {100 * comparison.within:g} %" if comparison.word == "same" else comparison.word


def _key(case: Case) -> tuple[object, ...]:
    """What stays the same along one line: everything but the runtime and n."""
    other = case.seq if case.phase == "step" else case.past
    return case.model, case.size, case.phase, case.dtype, case.batch, other


def _group(members: list[Measurement], varied: set[str]) -> Group:
    first = members[0].case
    lines: dict[str, list[Measurement]] = {}
    for m in sorted(members, key=lambda m: (m.case.runtime != BASE, m.case.length)):
        lines.setdefault(m.case.runtime, []).append(m)
    return Group(
        index=0,
        model=first.model,
        size=first.size,
        phase=first.phase,
        dtype=first.dtype,
        batch=first.batch,
        label=_label(first, varied),
        lines={runtime: tuple(line) for runtime, line in lines.items()},
    )


def _label(case: Case, varied: set[str]) -> str:
    """The phase, and of the rest what differs within the run."""
    words = [PHASES.get(case.phase, case.phase)]
    if case.phase == "step" and case.seq != 1:
        words.append(f"{case.seq} new tokens")
    if case.phase != "step" and case.past:
        words.append(f"{case.past} past tokens")
    if "dtype" in varied:
        words.append(case.dtype)
    if "batch" in varied:
        words.append(f"batch {case.batch}")
    return ", ".join(words)


@cache  # several views ask for the same line, and its intervals come from resampling
def _grow(lengths: tuple[int, ...], blocks: tuple[tuple[float, ...], ...], work: tuple[float, ...] | None) -> Growth:
    return grow(lengths, blocks, work)
