"""A comparison in plain sentences, and the pieces of text that its tables and sentences share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from ...bench.records import Case, Run
from ..document import Tone
from ..format import listing, plural
from ..series import PHASES
from .change import WITHIN, Change, Word
from .comparison import Comparison
from .machine import controls
from .noise import USUAL
from .overall import Overall

TONES: Mapping[str, Tone] = {"faster": "good", "slower": "bad", "same": "plain", "cannot tell": "unsure"}


def sentences(comparison: Comparison) -> tuple[str, ...]:
    """The answer first, then what it rests on."""
    said = (answer(comparison), _counts(comparison), _gone(comparison), _machine(comparison), *_state(comparison))
    return tuple(sentence for sentence in said if sentence)


def answer(comparison: Comparison) -> str:
    """Whether the head is worse than the base, in one sentence."""
    limit = f" by more than {percent(comparison.limit)}" if comparison.limit else ""
    whole = [f"{o.runtime or 'all cases'} {change(o)}" for o in comparison.slower_overall]
    found = [
        f"for sure slower{limit} over all cases: {listing(whole)}" if whole else "",
        f"{plural(len(comparison.slower), 'case')} for sure slower{limit}" if comparison.slower else "",
        f"{len(comparison.broken)} broken" if comparison.broken else "",
    ]
    if comparison.regressed:
        return f"Regression: {'; '.join(filter(None, found))}."
    if not comparison.changes:
        return "No case shows a time in both runs, so no time was compared."
    return f"No regression: nothing is for sure slower{limit}, and nothing broke."


def change(found: Change | Overall) -> str:
    """The change of a time: `+5.0 % (+4.1 to +5.9 %)`."""
    low, high = found.interval.low - 1, found.interval.high - 1
    ends = "no interval" if found.interval.low <= 0 else f"{signed(low)} to {signed(high)} %"
    return f"{signed(found.ratio - 1)} % ({ends})"


def signed(fraction: float) -> str:
    """A fraction in per cent with one decimal and its sign, without the unit."""
    text = f"{100 * fraction:+.1f}" if abs(fraction) < 1 else f"{100 * fraction:+,.0f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def percent(fraction: float) -> str:
    """A limit in per cent: `5 %`."""
    return f"{100 * fraction:.6g} %"


def worded(word: str) -> str:
    """One of the four words; "same" with the difference that it still allows."""
    return f"same within {percent(WITHIN)}" if word == "same" else word


def names(runs: Sequence[Run]) -> tuple[str, ...]:
    """What the runs are called: their folders, as far up as tells them apart, or a number besides."""
    for found in ([run.folder.resolve().name for run in runs], [str(run.folder) for run in runs]):
        if len(set(found)) == len(runs):
            return tuple(found)
    return tuple(f"{run.folder} ({number})" for number, run in enumerate(runs, 1))


def titled(case: Case) -> tuple[str, str]:
    """Model and phase of a case, as far as they are known."""
    model = f"{case.model} @ {case.size}" if case.size else case.model
    batch = f"batch {case.batch}" if case.batch != 1 else ""
    dtype = case.dtype if case.dtype != "fp32" else ""
    return model, ", ".join(filter(None, (PHASES.get(case.phase, case.phase), dtype, batch)))


def _counts(comparison: Comparison) -> str:
    counts = Counter(change.word for change in comparison.changes)
    words: tuple[Word, ...] = ("slower", "faster", "same", "cannot tell")
    said = listing([f"{counts[word]} {worded(word)}" for word in words if counts[word]]) if counts else ""
    alone = comparison.slower_overall and not comparison.called("slower")
    more = " What is sure of all cases together is sure of none alone." if alone else ""
    return f"Of {plural(len(comparison.changes), 'case')} timed in both: {said}.{more}" if said else ""


def _gone(comparison: Comparison) -> str:
    counts = Counter(fate.word for fate in comparison.fates if fate.word != "still without a time")
    return f"Not compared: {listing([f'{count} {word}' for word, count in counts.items()])}." if counts else ""


def _machine(comparison: Comparison) -> str:
    if comparison.together:
        return "Both were timed in the same rounds of blocks, so that what the machine did is in neither's favour."
    shared = {found.case.point: found.deviation.machine for found in comparison.changes}
    moved = [abs(part) for part in shared.values() if part]
    if len(moved) > len(shared) / 2 and median(moved) > USUAL:
        by = percent(round(math.expm1(median(moved)), 3))
        return (
            f"At {len(moved)} of {plural(len(shared), 'length')} all runtimes changed alike, by {by} in the median, as "
            "a machine with other work makes them: only what exceeds that is called. In one run, by isorun bench "
            "--base, both would see the same machine."
        )
    if comparison.changes and not controls(comparison.base, comparison.head) and len(comparison.overall) < 2:
        return "Nothing in these runs tells slower code from a slower machine: one runtime, and no yardstick in both."
    return ""


def _state(comparison: Comparison) -> tuple[str, ...]:
    """Which of the runs are not whole."""
    named = list(zip(names(comparison.runs), comparison.runs, strict=True))
    cut = [name for name, run in named if "finished" in run.header and not run.header["finished"]]
    damaged = [f"{name} ({plural(len(run.problems), 'problem')})" for name, run in named if run.problems]
    return (
        f"Not finished, compared as far as recorded: {listing(cut)}." if cut else "",
        f"Not all of it could be read: {listing(damaged)}; see Runs." if damaged else "",
    )
