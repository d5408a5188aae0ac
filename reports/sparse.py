"""Is attention that reads only part of the keys as cheap as it should be? Two predictions, and which was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..bench.complexity import slope
from ..bench.growth import ABOVE, SEPARATE, Growth, Read, adverb, told_apart
from ..bench.plausible import gflops
from ..bench.records import Measurement, Run
from .document import Cell, Table, Tone
from .exports import facts, positions, whole
from .format import exponent, plain, span
from .series import Group, growth
from .trend import UNKNOWN, basis

QUESTION = "Sparse attention: linear?"
RULE = (
    f"Sparse attention: theory predicts one exponent with the keys that are read and one with all keys. Where they are "
    f"less than {SEPARATE:g} apart, time cannot tell; else the interval must lie wholly on one side of their middle, "
    "and be no wider than they are apart. Linear: that with the keys that are read is at most "
    f"{ABOVE:g}; ✓ where the interval holds nothing else, ≈ where it only holds no full attention."
)
_TONES: Mapping[Read, Tone] = {"sparse": "good", "dense": "bad"}  # every other word is unsure
_WHY: Mapping[Read, str] = {
    "sparse": "; that rules out full attention",
    "too noisy": "; the interval is too wide to tell: where longer n can be measured, the two lie further apart",
    "neither": "; it is below both",
}


@dataclass(frozen=True)
class Reading:
    """What was measured at the long end of a line, the exponents with the keys that are `reads` and with all keys, and
    which of the two it is. `instead` says what would tell when nothing does."""

    reads: str
    growth: Growth
    sparse: float
    dense: float
    word: Read
    instead: str

    @property
    def linear(self) -> bool:
        """Whether it was measured to be."""
        return self.word == "sparse" and self.sparse <= ABOVE

    @property
    def exact(self) -> bool:
        """Whether nothing but linear is in the interval, and not only no full attention."""
        return adverb(self.growth.interval) == "linearly"

    @property
    def head(self) -> str:
        """The same in a word."""
        if self.word not in ("sparse", "dense"):
            return UNKNOWN
        if not self.linear:
            return "no"
        return "yes" if self.exact else "consistent"

    @property
    def answer(self) -> str:
        """Whether it is linear, and by what."""
        if self.word == "dense":
            return f"{self.head}: as if all keys were read, and not {self.reads}"
        if self.word != "sparse":
            return self.head
        if not self.linear:
            return f"no, yet as cheap as {self.reads} can be"
        return f"yes, with {self.reads}" if self.exact else f"consistent with linear: {self.reads}"

    @property
    def tone(self) -> Tone:
        """Whether the sparse attention is really there."""
        return "near" if self.linear and not self.exact else _TONES.get(self.word, "unsure")

    @property
    def evidence(self) -> str:
        """The figures."""
        found = self.growth
        both = (
            f"with {self.reads} theory predicts n^{exponent(self.sparse)}, with full attention n^{exponent(self.dense)}"
        )
        if self.word == "too near":
            return f"at n ≤ {found.high} {both}: too near to tell apart; {self.instead}"
        measured = f"n^{exponent(found.exponent, found.interval)} from n = {found.low} to {found.high}"
        return f"measured {measured}; {both}{_WHY.get(self.word, '')}"


def answered(run: Run, group: Group, runtime: str) -> tuple[str, str, Tone] | None:
    """Whether the sparse attention of a model is linear here, what that rests on, and how sure it is."""
    found = reading(run, group, runtime)
    if found:
        return found.answer, f"{found.evidence}; on {runtime}", found.tone
    told = facts(run, group).get("sparse")
    if not isinstance(told, Mapping) or group.phase == "step":
        return None
    return UNKNOWN, f"{plain(told.get('reads'))}: too few times on {runtime}, or no operations to predict by", "unsure"


def reading(run: Run, group: Group, runtime: str) -> Reading | None:
    """What a line says of its model's sparse attention; None where there is none, or nothing to judge by."""
    told = facts(run, group).get("sparse")
    found = growth(group, runtime)
    if not isinstance(told, Mapping) or found is None or group.phase == "step":
        return None
    line = [m for m in group.curve(runtime) if m.case.length >= found.low]
    full = [_full(run, m) for m in line]
    if not all(full) or not all(m.work for m in line):
        return None
    lengths = [m.case.length for m in line]
    sparse, dense = (slope(lengths, [n for n in work if n]) for work in ([m.work for m in line], full))
    word = told_apart(found.interval, sparse, dense)
    return Reading(plain(told.get("reads")), found, sparse, dense, word, _instead(run, group, found, told))


def _full(run: Run, m: Measurement) -> float | None:
    """What the time would go by with full attention: the further operations at the rate of the runtime's products."""
    if not m.dense_flops or not m.flops:
        return None
    if not m.expected_ns:
        return m.dense_flops
    rate = gflops(run.environment, m.case.dtype).get(m.case.runtime, 0.0)
    return m.expected_ns + (m.dense_flops - m.flops) / rate if rate > 0 else None


def _instead(run: Run, group: Group, found: Growth, told: Mapping[str, Any]) -> str:
    """Which n would tell."""
    needed, most = whole(told.get("told_from")), positions(run, group)
    if needed is not None and needed > found.high:
        return f"measure to n = {needed:,}"
    if needed is None and most is not None:
        return f"no length within this model's {most:,} positions tells"
    return "no length tells, since other layers read all keys" if needed is None else "measure further"


def table(run: Run, groups: tuple[Group, ...]) -> Table | None:
    """Every line of a model with sparse attention, a row a line."""
    known = [(group, name, found) for group in groups for name in group.lines if (found := reading(run, group, name))]
    columns = ("model", "phase", "runtime", "reads", "judged at n", "exponent", "theory", "with all keys", "linear?")
    rows = tuple(_row(*item) for item in known)
    return Table("Sparse attention", columns, rows, tuple(group.index for group, _, _ in known)) if rows else None


def _row(group: Group, runtime: str, found: Reading) -> tuple[Cell, ...]:
    measured = found.growth
    return (
        Cell(group.name),
        Cell(group.label),
        Cell(runtime),
        Cell(found.reads),
        Cell(span((measured.low, measured.high)), measured.high),
        Cell(exponent(measured.exponent, measured.interval), measured.exponent),
        Cell(exponent(found.sparse), found.sparse, note=f"by {basis(group, runtime)}"),
        Cell(exponent(found.dense), found.dense),
        Cell(found.head, tone=found.tone, note=found.evidence),
    )
