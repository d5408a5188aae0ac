"""Invariants: what must hold whatever the model, with no reference to compare with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...models.signature import Array
from ..client import WorkerError
from .candidate import Candidate
from .compare import Difference, K, difference, scale, unit
from .evaluators import Evaluators
from .feeds import make
from .finding import Finding
from .shapes import grid

CHECK = "invariants"
EXACT = 1e-9  # in float64
CHAOS = 1e-3  # of the scale: two runs that differ by more are no rounding


def check(candidate: Candidate, evaluators: Evaluators, runtime: str, feeds: Mapping[str, Array]) -> list[Finding]:
    """Determinism, finite values, and rows that do not depend on their batch."""
    try:
        first = evaluators.run(runtime, feeds)
        second = evaluators.run(runtime, feeds, again=True)
    except WorkerError as error:
        return [Finding(check=CHECK, status="skipped", says=f"{runtime}: {error}")]
    return [
        deterministic(first, second),
        *_finite(first),
        *_batch(candidate, evaluators, runtime, feeds, first),
    ]


def repeatable(candidate: Candidate, evaluators: Evaluators, runtime: str) -> list[Finding]:
    """Determinism alone, on inputs that the validator makes: NaN may be what they call for."""
    sizes, padding = grid(candidate)[-1]
    try:
        feeds = make(candidate.signature, sizes, padding=padding)
        return [deterministic(evaluators.run(runtime, feeds), evaluators.run(runtime, feeds, again=True))]
    except WorkerError:
        return []  # the check of shapes has said why


def deterministic(first: Mapping[str, Array], second: Mapping[str, Array]) -> Finding:
    """Two runs on the same input; the order of a parallel sum may vary, within rounding."""
    gaps = [difference(name, second.get(name), array, CHAOS / K * scale(array)) for name, array in first.items()]
    real = [gap for gap in gaps if gap.real]
    if not real:
        return Finding(check=CHECK, status="pass", says="two runs on the same input are equal")
    return Finding(
        check=CHECK,
        status="fail",
        says=f"two runs on the same input differ: {real[0]}",
        remedy="look for live dropout or a random operator; call module.eval() before the export",
    )


def _finite(outputs: Mapping[str, Array]) -> list[Finding]:
    for name, array in outputs.items():
        if np.isnan(array).any() if np.issubdtype(array.dtype, np.floating) else False:
            says = f"{name} has {int(np.isnan(array).sum())} NaN of {array.size} values"
            return [Finding(check=CHECK, status="fail", says=says)]
    return []


def _batch(
    candidate: Candidate,
    evaluators: Evaluators,
    runtime: str,
    feeds: Mapping[str, Array],
    together: Mapping[str, Array],
) -> list[Finding]:
    """Each row alone against the batch, where the first axis is a batch by the graph's own arithmetic.

    That is the case when, in float64 and without rounding in its quantisation, rows do not see each other.
    """
    batch = _batch_size(candidate, feeds, together)
    if batch is None:
        return []
    alone = [{name: array[row : row + 1] for name, array in feeds.items()} for row in range(batch)]
    try:
        exact = [evaluators.run("reference-ideal", row) for row in alone]
        if any(_gap(exact, evaluators.run("reference-ideal", feeds), EXACT)):
            return []
        single = [evaluators.run(runtime, row) for row in alone]
    except WorkerError as error:
        return [Finding(check=CHECK, status="skipped", says=f"rows alone: {error}")]
    real = _gap(single, together, unit(None, np.ones(1), candidate.artifact.dtype))
    if not real:
        return [Finding(check=CHECK, status="pass", says=f"each of {batch} rows is the same alone as in the batch")]
    return [
        Finding(
            check=CHECK,
            status="fail",
            says=f"{runtime}: a row depends on its batch: {max(real, key=lambda one: one.rms)}",
            remedy="dynamic quantisation takes one scale for the whole tensor: quantise per row or statically",
        )
    ]


def _batch_size(candidate: Candidate, feeds: Mapping[str, Array], outputs: Mapping[str, Array]) -> int | None:
    """The common first axis of all inputs and outputs, when it is free and holds more than one row."""
    sizes = {array.shape[0] if array.ndim else 0 for array in (*feeds.values(), *outputs.values())}
    free = all(spec.shape and isinstance(spec.shape[0], str) for spec in candidate.signature.inputs)
    return sizes.pop() if free and len(sizes) == 1 and max(sizes) > 1 else None


def _gap(rows: list[dict[str, Array]], together: Mapping[str, Array], relative: float) -> list[Difference]:
    """Differences beyond `relative` of the scale between rows that ran alone and the same rows of the batch."""
    gaps = [
        difference(name, row.get(name), array[i : i + 1], relative * scale(array))
        for i, row in enumerate(rows)
        for name, array in together.items()
    ]
    return [gap for gap in gaps if gap.real]
