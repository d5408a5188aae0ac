"""The verdict matrix: does each model export faithfully, is each runtime right, how fast, how does its cost grow."""

from __future__ import annotations

from collections.abc import Sequence

from ...bench.records import PARITY_LIMIT, Measurement, Run
from ...bench.timing import Comparison
from ..document import Cell, Section, Table, Tone
from ..format import exponent, number, ratio, span
from ..series import (
    BASE,
    SPEED_TONES,
    Group,
    distance,
    groups,
    growth,
    speeds,
    tried,
    verdict_of,
    worded,
    worst,
)
from ..trend import ELSEWHERE, TONES, explained

ORDER = 0
_NOTHING = Cell("–", tone="muted")


def view(run: Run) -> Section | None:
    """The verdict table."""
    found = groups(run)
    if not found:
        return None
    return Section("summary", "Verdicts", (), (_table(run, found),), _reading(run))


def _lengths(group: Group) -> Cell:
    """The lengths that have a time; all that were tried where none has."""
    found = group.timed or group.lengths
    return Cell(span(found), max(found))


def _table(run: Run, found: Sequence[Group]) -> Table:
    names = tried(run)
    others = [name for name in names if name != BASE and BASE in names]
    columns = ["model", "phase", "n", "exports faithfully"]
    columns += [f"{name}: outputs" for name in names]
    columns += [f"{name}: speed over {BASE}" for name in others]
    columns += [f"{name}: growth" for name in names]
    rows = tuple(
        (
            Cell(group.name),
            Cell(group.label),
            _lengths(group),
            _faithful(run, group),
            *(_parity(group.lines.get(name, ())) for name in names),
            *(_speed(group, name) for name in others),
            *(_growth(group, name) for name in names),
        )
        for group in found
    )
    indices = tuple(group.index for group in found)
    return Table("The verdict on each model in each phase", tuple(columns), rows, indices)


def _faithful(run: Run, group: Group) -> Cell:
    verdict = verdict_of(run, group)
    if verdict is None:
        return _unasked(group)
    held = ""
    if verdict.distance is not None and verdict.limit is not None:
        sign = "≤" if verdict.distance <= verdict.limit else ">"
        held = f", {number(verdict.distance, 2)} {sign} {number(verdict.limit, 1)}"
    words: dict[str, tuple[str, Tone]] = {"pass": ("yes", "good"), "fail": ("no", "bad")}
    word, tone = words.get(verdict.status, ("could not be checked", "unsure"))
    return Cell(word + held, value=verdict.distance, tone=tone, note=verdict.detail)


def _unasked(group: Group) -> Cell:
    """No answer: because nothing of this model came to run, or because nobody asked."""
    reasons = {m.reason if m.status == "failed" else None for line in group.lines.values() for m in line}
    reason = reasons.pop() if len(reasons) == 1 else None
    return Cell("failed", tone="bad", note=reason) if reason else Cell("not checked", tone="muted")


def _parity(line: Sequence[Measurement]) -> Cell:
    """The worst error of a runtime over all n, in units of torch's own rounding."""
    errors = {m.case.length: distance(error) for m in line if m.status == "ok" and (error := worst(m))}
    if not errors:
        return Cell("not checked", tone="muted")
    bad = [n for n, far in errors.items() if far > PARITY_LIMIT]
    top = max(errors.values())
    if bad:
        where = f"n = {bad[0]}" if len(bad) == 1 else f"{len(bad)} of {len(errors)} n"
        return Cell(f"wrong, {number(top)}, at {where}", top, "bad", note=f"n = {', '.join(map(str, bad))}")
    return Cell(f"right, {number(top)}", value=top, tone="good")


def _speed(group: Group, runtime: str) -> Cell:
    found = speeds(group, runtime)
    if not found:
        return _NOTHING
    n = max(found)
    longest = found[n]
    where = "" if n == max(group.lengths) else f", at n = {n}"
    note = "; ".join(f"n = {n}: {_gain(found[n])}" for n in sorted(found))
    return Cell(_gain(longest) + where, value=longest.ratio, tone=SPEED_TONES[longest.word], note=note)


def _gain(comparison: Comparison) -> str:
    return f"{worded(comparison)}, {ratio(comparison.ratio, comparison.interval)}"


def _growth(group: Group, runtime: str) -> Cell:
    law = growth(group, runtime)
    if law is None:
        return Cell("too little data", tone="muted") if group.lines.get(runtime) else _NOTHING
    text = f"{law.word}, {exponent(law.exponent, law.interval)}"
    text += "" if law.theory is None else f", theory {exponent(law.theory)}"
    return Cell(text, value=law.exponent, tone=TONES.get(law.word, "unsure"), note=explained(group, runtime, law))


def _reading(run: Run) -> tuple[str, ...]:
    """How to read the table."""
    speed = ("Speed: over torch, paired block by block, at the longest n where both outputs are right.",)
    return (
        "Exports faithfully: the largest difference between graph and source, both in float64, against its limit.",
        "Outputs: the worst error against float64 over every n, in units of torch's own rounding in the same "
        f"precision; up to {number(PARITY_LIMIT, 1)} is right.",
        *(speed if BASE in tried(run) else ()),
        f"Growth: {ELSEWHERE}",
    )
