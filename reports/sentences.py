"""What a run comes down to, in plain sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ..bench.records import Run, Verdict
from .format import listing, plural
from .series import (
    BASE,
    DRIFT,
    PHASES,
    SAME_FUNCTION,
    Group,
    faithful,
    groups,
    objection,
    speeds,
    tried,
    untimed,
    verdict_of,
)

_SHORT = 160  # characters of a reason within a sentence; the tables have all of it


def sentences(run: Run) -> tuple[str, ...]:
    """Who is faster, what is another function, whose outputs are wrong, what else failed, and what has no time."""
    found, names = groups(run), tried(run)
    if BASE in names:
        said = [_race(found, name) for name in names if name != BASE]
    else:
        said = [f"{BASE} was not measured, so there are no speed-ups."] if found else []
    said += [_exports(run, found), _outputs(found, names), _others(run), _missing(run)]
    return tuple(sentence for sentence in said if sentence)


def _race(found: Sequence[Group], runtime: str) -> str:
    ends = [speed[max(speed)].word for group in found if (speed := speeds(group, runtime))]
    if not ends:
        return f"{runtime} and {BASE} have no verified time in common, so neither is called faster."
    counts: Counter[str] = Counter(ends)
    rest = [
        f"{say} {counts[word]}"
        for word, say in (("slower", "slower on"), ("same", "the same on"), ("cannot tell", "undecided on"))
        if counts[word]
    ]
    start = f"At the longest n, {runtime} is faster than {BASE} on {counts['faster']} of {len(ends)} model × phase"
    return f"{start}, {listing(rest)}." if rest else f"{start}."


def _exports(run: Run, found: Sequence[Group]) -> str:
    asked = faithful(run)
    if not asked:
        return "No graph was compared with its source in float64, so none is called faithful."
    unasked = [group.title for group in found if verdict_of(run, group) is None]
    named = {status: [_named(v) for v in asked.values() if v.status == status] for status in ("pass", "fail", "error")}
    said = [
        f"{len(named['pass'])} of {plural(len(asked), 'graph')} compute the same function as their source in float64",
        f"another function: {listing(named['fail'])}" if named["fail"] else "",
        f"could not be checked: {listing(named['error'])}" if named["error"] else "",
        f"not compared: {listing(unasked)}" if unasked else "",
    ]
    return f"{'; '.join(filter(None, said))}."


def _outputs(found: Sequence[Group], names: Sequence[str]) -> str:
    wrong = [
        f"{name} on {group.title} at n = {_few(bad)}"
        for group in found
        for name in names
        if (bad := [m.case.length for m in group.lines.get(name, ()) if m.status == "ok" and m.errors and objection(m)])
    ]
    return f"Wrong outputs, whose times are not shown: {'; '.join(wrong)}." if wrong else ""


def _others(run: Run) -> str:
    bad = [v for v in run.verdicts if v.status != "pass" and v.check not in (SAME_FUNCTION, DRIFT)]
    named = "; ".join(f"{v.check} of {_named(v)} ({v.status})" for v in bad)
    return f"Other checks that did not pass: {named}." if bad else ""


def _named(verdict: Verdict) -> str:
    return f"{verdict.model} @ {verdict.size}, {PHASES.get(verdict.phase, verdict.phase)}"


def _missing(run: Run) -> str:
    without = [m for m in run.measurements if m.status != "ok"]
    if not without:
        return ""
    counts = [f"{count} {status}" for status, count in Counter(m.status for m in without).items()]
    reasons = [untimed(m) or "" for m in without]
    kinds = Counter(map(_kind, reasons))
    first = {_kind(reason): reason for reason in reversed(reasons)}
    named = "; ".join(f"{_short(first[kind])}{_more(count)}" for kind, count in kinds.most_common(3))
    more = f"; and {plural(len(kinds) - 3, 'other reason')}" if len(kinds) > 3 else ""
    return f"Of {plural(len(run.measurements), 'case')}, {listing(counts)}: {named}{more}."


def _kind(reason: str) -> str:
    """Reasons that differ in their numbers alone are of one kind."""
    return re.sub(r"\d+", "#", reason)


def _more(count: int) -> str:
    return f" (and {count - 1} more like it)" if count > 1 else ""


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= _SHORT else f"{line[:_SHORT]}…"


def _few(lengths: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(lengths)[:4]))
    return f"{shown}, …" if len(lengths) > 4 else shown
