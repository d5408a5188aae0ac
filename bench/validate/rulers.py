"""How far may two outputs be apart? By what the numbers of a model are: single, half, or quantised.

Every answer is a unit of rounding for `compare.difference`, whose limit is K of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...models.signature import Array, Feeds
from ..client import WorkerError
from .candidate import Candidate
from .compare import SAME, K, scale, unit
from .evaluators import Evaluators
from .numerics import errors

HALVES = ("fp16", "bf16")
INTEGERS = {4: 0.5, 8: 0.3}  # of the scale, by the bits of the weights: more is no error of quantisation
UNKNOWN = 0.05  # of the scale: an error of quantisation that nothing here can measure
TWICE = 2.0  # a graph may round in other places than its ruler


def meaning(
    candidate: Candidate, evaluators: Evaluators, feeds: Feeds, truth: Mapping[str, Array], *, exact: bool
) -> dict[str, float]:
    """Graph against source in float64.

    In single precision 1e-9 of the scale. A graph whose weights are stored in half may be off by what this rounding
    costs the source itself. A quantised one is looked at in `quantisation`; only an error as large as the output itself
    is none of quantisation. Where the graph could not be evaluated in float64 (not `exact`), rounding is allowed.
    """
    dtype = candidate.artifact.dtype
    if candidate.quantised:
        return {name: scale(array) / K for name, array in truth.items()}
    if not exact:
        return single(truth, {}, dtype)
    least = {name: SAME * scale(array) for name, array in truth.items()}
    if dtype not in HALVES:
        return least
    rounded = errors(truth, evaluators.run(f"source-{dtype}", feeds))
    return {name: max(least[name], TWICE * rounded.get(name, 0.0) / K) for name in truth}


def runtime(
    candidate: Candidate, evaluators: Evaluators, feeds: Feeds, truth: Mapping[str, Array], own: Mapping[str, float]
) -> dict[str, float]:
    """A runtime against the graph in float64; `own` is the measured error of the source in its own precision.

    Of a quantised graph it is the error of its quantisation: runtimes round activations in their own order, so two of
    them may lie on either side of the exact value.
    """
    rounding = single(truth, own, candidate.artifact.dtype)
    if not candidate.quantised:
        return rounding
    try:
        lost = errors(evaluators.run("reference-ideal", feeds), truth)
    except WorkerError:  # the arbiter does not know its operators
        return {name: UNKNOWN * scale(array) / K for name, array in truth.items()}
    return {name: max(unit_, TWICE * lost.get(name, 0.0) / K) for name, unit_ in rounding.items()}


def expected(candidate: Candidate, truth: Mapping[str, Array], own: Mapping[str, float]) -> dict[str, float]:
    """The graph against arrays that a user trusts; `own` is its measured rounding error."""
    if candidate.bits is not None:
        return {name: INTEGERS[candidate.bits] * scale(array) / K for name, array in truth.items()}
    return single(truth, own, candidate.artifact.dtype)


def single(truth: Mapping[str, Array], own: Mapping[str, float], dtype: str = "fp32") -> dict[str, float]:
    """Rounding in a precision of floats."""
    return {name: unit(own.get(name), array, dtype) for name, array in truth.items()}
