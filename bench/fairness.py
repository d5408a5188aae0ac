"""The fairness contract: what must be equal before two times may be compared, read from what the sessions say.

Copies lie outside the timed call of every runtime, because only `Session.run` is timed; the rest is compared.
"""

from __future__ import annotations

from dataclasses import fields

from .records import Case, Measurement

# Facts of a placement that must not differ. One that either side does not state, as in older records, is not compared.
FACTS = ("device", "affinity", "copies")
TF32 = "tf32"  # counts where products are in float32 alone


def refusal(base: Measurement, other: Measurement) -> str | None:
    """Why two times may not be compared, naming every difference; None when they may."""
    found = differences(base, other)
    if not found:
        return None
    return f"{other.case.runtime} is not compared with {base.case.runtime}: {'; '.join(found)}"


def differences(base: Measurement, other: Measurement) -> list[str]:
    """What breaks the contract, each as "what: one against other"."""
    pairs = [
        (name, getattr(base.case, name), getattr(other.case, name))
        for name in (field.name for field in fields(Case))
        if name != "runtime"
    ]
    first, second = base.placement, other.placement
    if first and second:
        pairs += [("threads", first.threads, second.threads), ("precision", first.precision, second.precision)]
        wanted = (*FACTS, TF32) if base.case.dtype == "fp32" else FACTS
        pairs += [
            (name, first.facts[name], second.facts[name])
            for name in wanted
            if name in first.facts.keys() & second.facts.keys()
        ]
    found = [f"{name} {one} against {two}" for name, one, two in pairs if one != two]
    return [*found, *(fallback for m in (base, other) if (fallback := elsewhere(m)))]


def elsewhere(m: Measurement) -> str | None:
    """Which share of the nodes ran on another provider than the one that the time is shown for, where most did."""
    if not m.placement or not m.placement.nodes:
        return None
    total, mine = sum(m.placement.nodes.values()), m.placement.nodes.get(m.placement.provider, 0)
    if 2 * mine >= total:
        return None
    return f"provider: {total - mine} of {total} nodes of {m.case.runtime} ran elsewhere than on {m.placement.provider}"
