"""Behaviour of language models, by the names of their inputs: the past, the padding and the cache.

Asked of the graph in float64, so that only its meaning counts. No reference is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import numpy as np

from ...models.signature import Array, positions
from ..client import WorkerError
from .candidate import Candidate
from .compare import SAME, Difference, difference, scale
from .evaluators import Evaluators
from .feeds import make
from .finding import Finding, verdict

CHECK = "invariants"
PAST, PRESENT = "past", "present"  # how the names of cached tensors begin, in all the ways that exporters write them
TOKENS = 9
STEPS = (5, 6, 7, TOKENS)  # where a pass over all tokens is cut: the first tokens, then steps of one, then of several

Run = Callable[[Mapping[str, Array]], dict[str, Array]]


def check(candidate: Candidate, evaluators: Evaluators) -> list[Finding]:
    """What can be asked of this signature; nothing of a model whose inputs are not a language model's.

    Quantised activations share one scale, through which tokens see each other: of such a graph they are taken exactly.
    """
    ranks = {spec.name: len(spec.shape) for spec in candidate.signature.inputs}
    outputs = {spec.name: len(spec.shape) for spec in candidate.signature.outputs}
    tokens = {name: rank for name, rank in ranks.items() if not name.startswith(PAST)}

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        return evaluators.run("reference" if candidate.bits is None else "reference-ideal", feeds)

    if not {"input_ids", "attention_mask"} <= ranks.keys() or set(tokens.values()) != {2}:
        return []
    try:
        if cache(ranks, outputs) and outputs.get("logits") == 3:
            return [_causal(candidate, run), _padded(candidate, run, "left"), _cached(candidate, run)]
        if {"input_ids", "attention_mask"} == ranks.keys() - {"token_type_ids"} and "logits" not in outputs:
            return [_padded(candidate, run, "right")]
    except WorkerError as error:
        return [Finding(check=CHECK, status="skipped", says=str(error))]
    return []


def cache(inputs: Iterable[str], outputs: Iterable[str]) -> dict[str, str]:
    """The output that becomes each input of the past: past_key_values.0.key, past_0, or one stacked tensor.

    Empty where one of them has none.
    """
    pasts, left = [name for name in inputs if name.startswith(PAST)], set(outputs)
    found = {}
    for name in pasts:
        rests = (name.removeprefix(past) for past in ("past_key_values", PAST) if name.startswith(past))
        names = [present + rest for rest in rests for present in (PRESENT, "present_key_values")]
        found[name] = next((present for present in names if present in left), "")
    return found if all(found.values()) else {}


def _causal(candidate: Candidate, run: Run) -> Finding:
    """Another last token must not change what came before it."""
    feeds = _feeds(candidate, batch=2, tokens=TOKENS, past=0)
    changed = dict(feeds)
    changed["input_ids"] = feeds["input_ids"].copy()
    changed["input_ids"][:, -1] = (feeds["input_ids"][:, -1] + 1) % max(2, int(feeds["input_ids"].max()))
    before, after = run(feeds)["logits"][:, :-1], run(changed)["logits"][:, :-1]
    good, bad = "future tokens do not reach the past", "another last token changes what came before it"
    return verdict(CHECK, [_same("logits", after, before)], good, "check the causal mask", bad)


def _padded(candidate: Candidate, run: Run, side: str) -> Finding:
    """A row padded on the side that its kind of model pads, beside the same row alone."""
    alone = _feeds(candidate, batch=1, tokens=TOKENS, past=0)
    extra = 4
    padded = {name: _pad(name, array, extra, side) for name, array in alone.items()}
    if "position_ids" in padded:
        padded["position_ids"] = positions(padded["attention_mask"], TOKENS + extra)
    real = slice(extra, None) if side == "left" else slice(None, TOKENS)
    found = run(padded)
    gaps = []
    for name, truth in run(alone).items():
        array = found.get(name)
        if array is not None and array.ndim >= 2 and array.shape[1] == TOKENS + extra:
            array = array[:, real]
        if array is not None and array.shape == truth.shape:  # others, such as the cache, have padding in other places
            gaps.append(_same(name, array, truth))
    good, bad = f"{side} padding changes nothing at real tokens", f"{side} padding changes real tokens"
    return verdict(CHECK, gaps, good, "check how the masks and positions use padding", bad)


def _cached(candidate: Candidate, run: Run) -> Finding:
    """One pass over n tokens, against a shorter one followed by steps with the cache."""
    feeds = _feeds(candidate, batch=2, tokens=TOKENS, past=0)
    whole = run(feeds)
    presents = cache(feeds, whole)
    past: dict[str, Array] = {}
    gaps = []
    for start, stop in pairwise((0, *STEPS)):
        result = run({name: _cut(name, array, start, stop) for name, array in feeds.items()} | past)
        past = {name: result[present] for name, present in presents.items()}
        gaps.append(_same("logits", result["logits"], whole["logits"][:, start:stop]))
    good, bad = "prefill and cached steps give the same logits", "prefill and cached steps differ"
    return verdict(CHECK, gaps, good, "check the positions, the mask and the order of the cache", bad)


def _feeds(candidate: Candidate, *, batch: int, tokens: int, past: int) -> dict[str, Array]:
    declared = candidate.signature
    feeds = make(declared, declared.sizes(batch=batch, length=tokens, past=past), seed=1)
    return {name: np.zeros_like(array) if name.startswith(PAST) else array for name, array in feeds.items()}


def _pad(name: str, array: Array, extra: int, side: str) -> Array:
    if name.startswith(PAST):
        return array
    widths = (extra, 0) if side == "left" else (0, extra)
    return np.pad(array, [(0, 0), widths])


def _cut(name: str, array: Array, start: int, stop: int) -> Array:
    """The new tokens from start to stop; a mask covers the past as well."""
    if name.startswith(PAST):
        return array
    return array[:, :stop] if name == "attention_mask" else array[:, start:stop]


def _same(name: str, found: Array, truth: Array) -> Difference:
    return difference(name, found, truth, SAME * scale(truth))
