"""What a precision costs: how far the predicted tokens move, and where in the model the error is made.

Asked of quantised graphs and of those in half precision, in float64, against the source or the graph that they were
made from. Errors are relative: rms over rms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from ...models.signature import Array, Feeds
from ..client import WorkerError
from . import locate
from .candidate import Candidate
from .compare import scale
from .evaluators import Evaluators
from .finding import Finding
from .numerics import errors
from .rulers import HALVES, INTEGERS
from .walk import Step

CHECK = "numerics"
LOGITS = "logits"
TIE = 6.0  # a gap between two logits below so many standard errors is a near-tie: noise alone may turn it
MEDIAN = 1.4826  # the standard deviation of normal noise in units of its median magnitude
ROUNDING = {"fp16": 16 * 2.0**-11, "bf16": 16 * 2.0**-8}  # of one operator in half: its weights alone are rounded
LAYER = re.compile(r"^(.*?\.\d+)(?:\.|$)")
SHOWN = 3


def lossy(candidate: Candidate) -> bool:
    """Whether a graph was made less precise than its source, on purpose."""
    return candidate.bits is not None or candidate.artifact.dtype in HALVES


def check(candidate: Candidate, evaluators: Evaluators, feeds: Feeds) -> list[Finding]:
    """All of it on one set of inputs; a step beyond what its numbers explain fails."""
    try:
        found, truth = evaluators.run("reference", feeds), evaluators.run("source64", feeds)
        steps = evaluators.walk(feeds, candidate.opset)
    except WorkerError as error:
        return [Finding(check=CHECK, status="skipped", says=f"what the precision costs: {error}")]
    step = beyond(steps, candidate)
    wrong = [locate.describe(step)] if step else []
    return [*wrong, *outputs(found, truth), *tokens(found, truth), *by_layer(steps)]


def tokens(found: Mapping[str, Array], truth: Mapping[str, Array]) -> list[Finding]:
    """KL divergence and top-1 flips of the logits. A flip over a gap that the error cannot explain fails."""
    if LOGITS not in truth or LOGITS not in found or found[LOGITS].shape != truth[LOGITS].shape:
        return []
    a, b = (x[LOGITS].reshape(-1, x[LOGITS].shape[-1]).astype(np.float64) for x in (found, truth))
    if not a.size or not np.isfinite(a).all():
        return []
    error = MEDIAN * np.median(np.abs(a - b), axis=1)  # of most logits: a wild one must not excuse itself
    ours, theirs = a.argmax(1), b.argmax(1)
    row = np.arange(len(b))
    gap = b[row, theirs] - b[row, ours]
    flips, real = ours != theirs, (ours != theirs) & (gap > TIE * error)
    divergence = _divergence(a, b)
    ties = int(flips.sum() - real.sum())
    moved = (
        f"another one at {flips.sum()} of {len(b)}, {ties} of them near-ties"
        if flips.any()
        else f"the same at all {len(b)}"
    )
    says = (
        f"{LOGITS}: KL {divergence.mean():.2g} nats a token (at most {divergence.max():.2g}); "
        f"the likeliest token is {moved}"
    )
    data = {
        "kl_mean": float(divergence.mean()),
        "kl_max": float(divergence.max()),
        "tokens": len(b),
        "flips": int(flips.sum()),
        "near_ties": ties,
    }
    remedy = "look for a wrong scale or zero point: noise does not turn so wide a gap" if real.any() else ""
    return [Finding(check=CHECK, status="fail" if real.any() else "pass", says=says, remedy=remedy, data=data)]


def outputs(found: Mapping[str, Array], truth: Mapping[str, Array]) -> list[Finding]:
    """The error of each output; one as large as the output itself is none of a precision."""
    sizes = {name: scale(array) for name, array in truth.items() if array.dtype.kind == "f"}
    far = {name: error / sizes[name] for name, error in errors(truth, found).items() if sizes.get(name)}
    if not far:
        return []
    worst = max(far, key=lambda name: far[name])
    says = f"error of the precision: {far[worst]:.2g} of {worst}"
    return [Finding(check=CHECK, status="fail" if far[worst] >= 1 else "pass", says=says, data=far)]


def by_layer(steps: Iterable[Step]) -> list[Finding]:
    """How the error grows from layer to layer, and which operator adds most of it."""
    layers: dict[str, dict[str, float | str]] = {}
    usable = [step for step in steps if step.floats and np.isfinite(step.error)]
    for step in usable:
        match = LAYER.match(step.module)
        key = match[1] if match else step.module
        added = max(step.local, float(layers.get(key, {}).get("added", 0.0)))
        layers.pop(key, None)  # the last value of a layer counts, where it stands
        layers[key] = {"layer": key, "value": step.value, "error": step.error, "added": added}
    if not layers:
        return []
    rows = list(layers.values())
    numbered = [row for row in rows if LAYER.match(str(row["layer"]))]
    shown = [*(numbered if len(numbered) <= 2 * SHOWN else [*numbered[:SHOWN], *numbered[-SHOWN:]]), rows[-1]]
    text = ", ".join(f"{row['layer']} {row['error']:.2g}" for row in shown)
    most = max(usable, key=lambda step: step.local)
    says = f"error by layer: {text}; most is added by {most.op} {most.node!r} in {most.module}: {most.local:.2g}"
    return [Finding(check=CHECK, status="pass", says=says, data={"layers": rows})]


def beyond(steps: Iterable[Step], candidate: Candidate) -> Step | None:
    """The first step that is off by more than its numbers explain."""
    for step in steps:
        integers = step.quantised and candidate.bits is not None
        limit = INTEGERS[candidate.bits or 8] if integers else ROUNDING.get(candidate.artifact.dtype)
        if step.differs if limit is None else step.local > limit:
            return step
    return None


def _divergence(found: Array, truth: Array) -> Array:
    """KL(truth ‖ found) of each row of logits, in nats [Kullback & Leibler 1951]."""
    p, q = _log_softmax(truth), _log_softmax(found)
    return np.asarray(np.maximum((np.exp(p) * (p - q)).sum(1), 0.0))


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))
