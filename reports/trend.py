"""How the time of a group grows, and whether that is what theory says, in words."""

from __future__ import annotations

from collections.abc import Mapping

from ..bench.growth import FEWEST, RANGE, TOLERANCE, Growth, adverb
from .document import Tone
from .format import exponent
from .race import places
from .series import Group, growth

UNKNOWN = "cannot tell"
TONES: Mapping[str, Tone] = {"agrees": "good", "close": "near", "disagrees": "bad", "no prediction": "plain"}
WORDS = {
    "agrees": "as theory says",
    "close": "close to theory",
    "disagrees": "not as theory says",
    "range too small": "lengths too few or too near to each other to hold against theory",
    "too noisy": "too noisy to hold against theory",
    "no prediction": "no theory",
}
_RULES = {
    "agrees": f"inside the interval, and within {TOLERANCE:g} of the exponent",
    "close": f"outside the interval, but within {TOLERANCE:g} of the exponent",
    "disagrees": f"more than {TOLERANCE:g} away",
    "range too small": f"to judge takes {FEWEST} lengths, the longest {RANGE} times the shortest",
    "too noisy": f"the interval is too wide to say whether that is within {TOLERANCE:g}",
}
READING = (
    "Growth: the exponent of n over the last doubling of n, with its 95 % interval, held against the exponent of the "
    "graph's operations and bytes over the same n (of its operations alone, where it says so). "
    f"✓ as theory says (agrees): within {TOLERANCE:g} of that exponent, and it lies within the interval. "
    f"≈ close to theory (close): within {TOLERANCE:g}, but outside the interval; theory knows neither the fixed costs "
    f"of a call nor caches. ✗ not as theory says (disagrees): for sure more than {TOLERANCE:g} away. "
    "No mark: the lengths are too few, or the times too noisy, to be held against theory. ? they do not even say how "
    "the time grows."
)
ELSEWHERE = f"by the rule under Answers: the exponent over the last doubling of n, within {TOLERANCE:g} of theory's."
_STEEP = 0.1  # by how much the exponent over all n must differ to be worth a word


def leader(group: Group) -> str | None:
    """The fastest runtime at the longest n; None when no time may be shown."""
    found = places(group)
    return found[-1].first if found else None


def grown(group: Group, runtime: str) -> tuple[str, str, Tone]:
    """How the time of one line grows: in words, what they rest on, and whether theory agrees."""
    found = growth(group, runtime)
    if found is None:
        return UNKNOWN, f"fewer than three lengths have a time on {runtime}", "unsure"
    word = adverb(found.interval)
    tone = TONES.get(found.word, "plain") if word else "unsure"
    return word or UNKNOWN, f"{explained(group, runtime, found)}; on {runtime}", tone


def explained(group: Group, runtime: str, found: Growth) -> str:
    """The judgement of a line with its figures and its rule, as every part of a report gives it."""
    said = f"n^{exponent(found.exponent, found.interval)} from n = {found.low} to {found.high}"
    if found.theory is None:
        return f"{said}; the operations of this model are not known{_short(found)}"
    held = f"{basis(group, runtime)} give n^{exponent(found.theory)}: {_RULES[found.word]}"
    return f"{WORDS[found.word]}: {said}; {held}{_short(found)}"


def basis(group: Group, runtime: str) -> str:
    """What theory counts of a line."""
    return "operations and bytes" if all(m.expected_ns for m in group.curve(runtime)) else "operations"


def _short(found: Growth) -> str:
    """What is different at short n, when it is."""
    overall, first = found.fit.exponent, found.fit.lengths[0]
    noise = found.interval.low <= overall <= found.interval.high
    if first == found.low or noise or abs(overall - found.exponent) <= _STEEP:
        return ""
    how = "flatter at short n, where fixed costs weigh more" if overall < found.exponent else "steeper at short n"
    if overall < 0:
        how = "since short n took longer than longer ones: the machine may have been busy then"
    return f"; over all n from {first} it is n^{exponent(overall)}, {how}"
