"""What it takes to generate tokens with and without a cache, by the laws of prefill and step: derived, not measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..bench.extrapolate import Estimate, generation, saving
from ..bench.records import Run
from .exports import facts
from .series import Group, growth


@dataclass(frozen=True)
class Generation:
    """A whole generation on one runtime, within the measured lengths: `tokens` tokens after `prompt` ones.

    Times are in nanoseconds; `saved` is the time without the cache over that with it. `group` are the decode steps.
    """

    group: Group
    runtime: str
    prompt: int
    tokens: int
    cached: Estimate
    uncached: Estimate
    saved: Estimate


def generations(run: Run, found: Sequence[Group]) -> tuple[Generation, ...]:
    """One for each line of decode steps whose model has a line of forward passes on the same runtime.

    An encoder-decoder has none: its pass runs over the source again, which is as long as what is decoded.
    """
    passes = {_model(group): group for group in found if group.phase == "forward"}
    steps = [group for group in found if group.phase == "step" and "source" not in facts(run, group).get("axes", ())]
    pairs = [(passes[_model(group)], group) for group in steps if _model(group) in passes]
    made = (_generation(forward, step, runtime) for forward, step in pairs for runtime in step.lines)
    return tuple(generation for generation in made if generation)


def _model(group: Group) -> tuple[object, ...]:
    return group.name, group.dtype, group.batch


def _generation(forward: Group, step: Group, runtime: str) -> Generation | None:
    laws = [law.fit for group in (forward, step) if (law := growth(group, runtime))]
    if len(laws) < 2:
        return None
    first = max(min(law.lengths) for law in laws)
    last = min(max(law.lengths) for law in laws)
    tokens = last - first
    if tokens < 1:
        return None
    prefill, decode = laws
    return Generation(
        step,
        runtime,
        first,
        tokens,
        cached=generation(prefill, decode, first, tokens),
        uncached=generation(prefill, None, first, tokens),
        saved=saving(prefill, decode, first, tokens),
    )
