"""The fairness contract: what every comparison of this report was held to, and the figures of this run beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ...bench.plan import MOST_S
from ...bench.plausible import HEADROOM, ceiling
from ...bench.records import PARITY_LIMIT, Measurement, Run
from ..control import controlled
from ..document import Cell, Section, Table
from ..format import duration, listing, number, plain, plural, span
from ..series import distance, refusals, tried, worst

ORDER = 85


def view(run: Run) -> Section | None:
    """One row a rule; nothing when nothing was measured."""
    timed = [m for m in run.measurements if m.blocks_ns]
    if not timed:
        return None
    rules = (
        ("the same graph, inputs and weights for all", "one exported file a model and phase", _runtimes(run)),
        ("outputs checked on the session that is timed", f"error ≤ {number(PARITY_LIMIT, 1)} rulers", _worst(timed)),
        ("the same threads", "as many for each runtime", _said(timed, "threads")),
        ("the same precision", "what the session really computes in", _said(timed, "precision")),
        ("a process of its own", "one a model and runtime; none but torch's has loaded torch", ""),
        ("blocks alternate", "in shuffled order, so that drift meets all alike", _blocks(timed)),
        ("warm before timed", "warm-up until two windows agree; the first call of a block is discarded", _calls(timed)),
        ("only the call is timed", "data is in place before and outputs are fetched after", _overhead(run, timed)),
        ("the same runtime twice", "the control: one runtime in a second process, in every round", controlled(run)),
        (
            "times that cannot be are refused",
            f"up to {number(HEADROOM, 1)} times the operations of a bare product in that precision; more for more work",
            _ceilings(run, timed),
        ),
        (
            "the same rule to stop",
            f"intervals below ± 2 %, or at most {MOST_S:g} s for one n",
            _stopped(timed),
        ),
    )
    rows = tuple((Cell(rule), Cell(how), Cell(here) if here else Cell("–", tone="muted")) for rule, how, here in rules)
    lead = ("Two times may be compared when everything but the runtime is the same. This is what was kept the same.",)
    held = Table("What was held to", ("rule", "how", "in this run"), rows)
    refused = Table("Not compared", ("because",), tuple((Cell(reason, tone="bad"),) for reason in refusals(run)))
    return Section("contract", "Contract", lead, (held, refused) if refused.rows else (held,))


def _runtimes(run: Run) -> str:
    return listing(list(tried(run)))


def _worst(timed: Sequence[Measurement]) -> str:
    far = [distance(error) for m in timed if (error := worst(m))]
    return f"{number(max(far))} at most, in {plural(len(far), 'session')}" if far else "not checked"


def _said(timed: Sequence[Measurement], what: str) -> str:
    found = dict.fromkeys(str(getattr(m.placement, what)) for m in timed if m.placement)
    return ", ".join(found)


def _blocks(timed: Sequence[Measurement]) -> str:
    return f"{span([len(m.blocks_ns) for m in timed])} blocks a case"


def _calls(timed: Sequence[Measurement]) -> str:
    return f"{span([sum(map(len, m.blocks_ns)) for m in timed])} timed calls a case"


def _stopped(timed: Sequence[Measurement]) -> str:
    counts = Counter(m.stopped for m in timed if m.stopped)
    return listing([f"{count} by {reason}" for reason, count in counts.items()]) if counts else ""


def _ceilings(run: Run, timed: Sequence[Measurement]) -> str:
    """The rate that each precision was held to, or that there was none."""
    said = []
    for dtype in dict.fromkeys(m.case.dtype for m in timed):
        rate = ceiling(run.environment, dtype)
        said.append(f"{dtype} {number(rate)} GFLOP/s" if rate else f"{dtype}: no rate, so only growth was judged")
    return "; ".join(said)


def _overhead(run: Run, timed: Sequence[Measurement]) -> str:
    """What a call that computes nothing costs, beside the shortest time of the same runtime."""
    found = run.environment.get("overhead_ns")
    empty = found if isinstance(found, Mapping) else {}
    said = []
    for name, ns in empty.items():
        times = [m.median_ns for m in timed if m.case.runtime == name and m.median_ns]
        if isinstance(ns, int | float) and ns > 0 and times:
            share = f", {number(100 * ns / min(times), 2)} % of its shortest time"
            said.append(f"{plain(name)} {duration(ns)}{share}")
    return f"a call of nothing: {'; '.join(said)}" if said else ""
