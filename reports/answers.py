"""The answers that a reader came for, per model: faithful? fastest? how does it grow? at 32,768 tokens?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..bench.records import PARITY_LIMIT, Run, Verdict
from ..bench.timing import Interval
from .ahead import SURE, TARGET, ahead
from .batches import Gain, largest, sentence
from .document import Answer, Card, Line, Tone
from .format import duration, listing, number, plural, ratio
from .generations import Generation, generations
from .race import UNDECIDED, won
from .series import Group, distance, groups, objection, verdict_of, worst
from .sparse import QUESTION, answered
from .trend import UNKNOWN, grown, leader

FAITHFUL, FASTEST, GROWTH = "Exports faithfully?", "Fastest here?", "How does it grow?"
AHEAD = f"At {TARGET:,} tokens?"
BATCH, GENERATING = "Does a batch pay?", "A whole generation?"


def cards(run: Run) -> tuple[Card, ...]:
    """One card a model and size, in the order of the run."""
    members: dict[str, list[Group]] = {}
    for group in groups(run):
        members.setdefault(group.name, []).append(group)
    return tuple(_card(run, name, found) for name, found in members.items())


def _card(run: Run, name: str, found: Sequence[Group]) -> Card:
    timed = [(group, runtime) for group in found if (runtime := leader(group))]
    answers = (
        Answer(FAITHFUL, (*_graphs(run, found), *_outputs(found))),
        Answer(FASTEST, tuple(_fastest(group) for group, _ in timed) or (_untimed(found),)),
        Answer(GROWTH, tuple(_growth(group, runtime) for group, runtime in timed)),
        Answer(QUESTION, tuple(line for item in timed if (line := _sparse(run, *item)))),
        Answer(AHEAD, tuple(_ahead(run, group, runtime) for group, runtime in timed)),
        Answer(GENERATING, tuple(_generating(made) for made in generations(run, found) if _leads(made))),
        Answer(BATCH, tuple(_batch(gain) for gain in largest(found))),
    )
    shown = tuple(answer for answer in answers if answer.lines)
    return Card(name, shown, tuple(group.index for group in found))


def _graphs(run: Run, found: Sequence[Group]) -> Iterator[Line]:
    """A line for each precision, since each has a limit of its own."""
    dtypes = dict.fromkeys(group.dtype for group in found)
    for dtype in dtypes:
        label = "graph" if len(dtypes) == 1 else f"graph, {dtype}"
        yield replace(_faithful(run, [group for group in found if group.dtype == dtype]), label=label)


def _faithful(run: Run, found: Sequence[Group]) -> Line:
    """Of the graphs, the worst: one that is another function, one that could not be checked, or that all are right."""
    place = _place("summary", found[0])
    asked = [(group, verdict) for group in found if (verdict := verdict_of(run, group))]
    for status, head, tone in (("fail", "no", "bad"), ("error", "could not be checked", "unsure")):
        bad = [(group, verdict) for group, verdict in asked if verdict.status == status]
        if bad:
            said = "; ".join(f"{group.label}: {_apart(verdict)}{verdict.detail}" for group, verdict in bad)
            return Line("graph", head, said, tone, place)  # type: ignore[arg-type]  # a tone by construction
    if not asked:
        return _unchecked(found, place)
    far = max((verdict.distance or 0.0 for _, verdict in asked), default=0.0)
    limit = max((verdict.limit or 0.0 for _, verdict in asked), default=0.0)
    within = f"{plural(len(asked), 'graph')} within {number(far, 2)} of the source"
    rest = [group.label for group in found if verdict_of(run, group) is None]
    also = f"; not checked: {listing(rest)}" if rest else ""
    detail = f"{within} in float64, limit {number(limit, 1)}{also}"
    return Line("graph", "yes", detail, "unsure" if rest else "good", place)


def _apart(verdict: Verdict) -> str:
    if verdict.distance is None or verdict.limit is None:
        return ""
    return f"{number(verdict.distance, 2)} from the source in float64, limit {number(verdict.limit, 1)}; "


def _unchecked(found: Sequence[Group], place: str) -> Line:
    failed = {m.reason for group in found for line in group.lines.values() for m in line if m.status == "failed"}
    reason = failed.pop() if len(failed) == 1 else None
    return Line("graph", "no", reason, "bad", place) if reason else Line("graph", "not checked", "", "muted", place)


def _outputs(found: Sequence[Group]) -> Iterator[Line]:
    """Whether the runtimes compute the graph as they should, all phases together."""
    measured = [m for group in found for line in group.lines.values() for m in line if m.errors]
    if not measured:
        return
    wrong = dict.fromkeys(m.case.runtime for m in measured if objection(m))
    top = max(distance(error) for m in measured if (error := worst(m)))
    against = f"at most {number(top)} times torch's own rounding, limit {number(PARITY_LIMIT, 1)}"
    head, tone = (f"wrong on {listing(list(wrong))}", "bad") if wrong else ("right", "good")
    names = listing(list(dict.fromkeys(m.case.runtime for m in measured)))
    detail = f"{against}, on {names}"
    yield Line("outputs", head, detail, tone, _place("parity", found[0]))  # type: ignore[arg-type]  # as above


def _fastest(group: Group) -> Line:
    head, detail = won(group)
    tone: Tone = "unsure" if head.startswith(UNDECIDED) else "plain"
    return Line(group.label, head, detail, tone, _place("latency", group))


def _untimed(found: Sequence[Group]) -> Line:
    return Line("", "no time", "nothing has a verified time; see the cases without one", "muted", "#latency")


def _growth(group: Group, runtime: str) -> Line:
    head, detail, tone = grown(group, runtime)
    return Line(group.label, head, detail, tone, _place("decode" if group.phase == "step" else "scaling", group))


def _sparse(run: Run, group: Group, runtime: str) -> Line | None:
    found = answered(run, group, runtime)
    if found is None:
        return None
    head, detail, tone = found
    return Line(group.label, head, detail, tone, _place("scaling", group))


def _ahead(run: Run, group: Group, runtime: str) -> Line:
    head, detail = ahead(run, group, runtime)
    tone: Tone = "unsure" if head == "cannot tell" else "plain"
    return Line(group.label, head, detail, tone, _place("decode" if group.phase == "step" else "scaling", group))


def _leads(made: Generation) -> bool:
    return made.runtime == leader(made.group)


def _generating(made: Generation) -> Line:
    (low, mid, high), without, saved = made.cached, made.uncached, made.saved
    if high > SURE * low:
        said = f"the fitted laws leave {duration(low)} to {duration(high)}"
        return Line(made.group.label, UNKNOWN, said, "unsure", _place("decode", made.group))
    detail = (
        f"{made.tokens} tokens after {made.prompt}, with the cache: {duration(low)} to {duration(high)}; without it "
        f"{duration(without.mid)}, {ratio(saved.mid, Interval(saved.low, saved.high))} as long; on {made.runtime}; "
        "from the fitted laws, not measured"
    )
    return Line(made.group.label, f"about {duration(mid)}", detail, "plain", _place("decode", made.group))


def _batch(gain: Gain) -> Line:
    head = f"{ratio(gain.rate, gain.rate_interval)} the tokens per second"
    return Line(gain.group.label, head, sentence(gain), gain.tone, _place("batches", gain.group))


def _place(section: str, group: Group) -> str:
    """Where the page shows what is known about a group."""
    return f"#{section}-g{group.index}"
