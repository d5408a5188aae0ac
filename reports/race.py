"""Which runtime is the fastest at each n, and how surely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ..bench.fairness import refusal
from ..bench.records import Measurement
from ..bench.timing import Comparison
from .format import listing, ratio
from .series import Group

UNDECIDED = "undecided"


@dataclass(frozen=True)
class Place:
    """The result at one n: the fastest runtime, those that it is not surely faster than, and its lead over the next.

    `alike` says that those are as fast within 5 %, and not that they cannot be told apart. `refused` are the reasons
    why others are not compared with it at all.
    """

    n: int
    first: str
    level: tuple[str, ...] = ()
    alike: bool = False
    second: str | None = None
    lead: Comparison | None = None
    refused: tuple[str, ...] = ()


def places(group: Group) -> tuple[Place, ...]:
    """The result at each n where any time may be shown, in order of n."""
    lines: dict[int, list[Measurement]] = {}
    for runtime in group.lines:
        for m in group.shown(runtime):
            lines.setdefault(m.case.length, []).append(m)
    return tuple(_place(group, n, found) for n, found in sorted(lines.items()))


def won(group: Group) -> tuple[str, str]:
    """Who is fastest at the longest n, and by how much and where else; empty when no time may be shown."""
    found = places(group)
    if not found:
        return "", ""
    last = found[-1]
    alone = "; ".join(last.refused) or f"at n = {last.n} nothing else has a verified time"
    ahead = f"{lead(last)} at n = {last.n}" if last.lead else alone
    *others, _ = [list(stretch) for _, stretch in groupby(found, key=_outcome)]
    if not others:
        return who(last), f"{ahead}; the same answer at every n" if len(found) > 1 else ahead
    if len(others) == 1 and not others[0][-1].level and who(last).startswith(UNDECIDED):
        before = others[0][-1]
        return f"{before.first} up to n = {before.n}, then {who(last)}", f"{lead(before)} at n = {before.n}; {ahead}"
    return who(last), "; ".join((ahead, *(f"{who(stretch[0])} {_where(stretch)}" for stretch in reversed(others))))


def _place(group: Group, n: int, measured: Sequence[Measurement]) -> Place:
    first, *others = sorted(measured, key=lambda m: m.median_ns or 0.0)
    refused = tuple(reason for m in others if (reason := refusal(first, m)))
    fair = [m for m in others if refusal(first, m) is None]
    gains = {m.case.runtime: group.compared(m, first) for m in fair}
    level = tuple(name for name, gain in gains.items() if gain.word != "faster")
    second = next(iter(gains), None)
    return Place(
        n=n,
        first=first.case.runtime,
        level=level,
        alike=bool(level) and all(gains[name].word == "same" for name in level),
        second=second,
        lead=gains[second] if second else None,
        refused=refused,
    )


def _outcome(place: Place) -> tuple[object, ...]:
    return (frozenset((place.first, *place.level)), place.alike) if place.level else (place.first,)


def who(place: Place) -> str:
    """The fastest, or those that share the first place."""
    names = listing(sorted((place.first, *place.level)))
    if not place.level:
        return names
    return f"{names} alike" if place.alike else f"{UNDECIDED} between {names}"


def _where(stretch: Sequence[Place]) -> str:
    low, high = stretch[0].n, stretch[-1].n
    return f"at n = {low}" if low == high else f"from n = {low} to {high}"


def lead(place: Place) -> str:
    """The lead of the fastest over the next."""
    gain = place.lead
    return f"{ratio(gain.ratio, gain.interval)} over {place.second}" if gain else ""
