"""Numerics: does each runtime compute the graph as well as it can be computed in this precision?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ...export.distance import rms
from ...models.signature import Array
from ..client import WorkerDied, WorkerError
from .compare import difference, unit
from .evaluators import Evaluators
from .finding import Finding, verdict

CHECK = "numerics"


def errors(truth: Mapping[str, Array], found: Mapping[str, Array]) -> dict[str, float]:
    """The rms error of each float output that can be compared: the graph's own rounding."""
    return {
        name: rms(found[name].astype(np.float64) - array)
        for name, array in truth.items()
        if name in found and found[name].shape == array.shape and np.isfinite(found[name]).all()
    }


def check(
    evaluators: Evaluators,
    runtimes: list[str],
    feeds: Mapping[str, Array],
    truth: Mapping[str, Array],
    plain: Mapping[str, float],
    dtype: str,
) -> list[Finding]:
    """Each runtime, with and without its optimisations, against the graph in float64."""
    findings: list[Finding] = []
    for runtime in runtimes:
        for optimise in (False, True):
            findings.append(_one(evaluators, runtime, optimise, feeds, truth, plain, dtype))
            if findings[-1].status == "error":
                break
    return _blame(findings)


def strict_half(evaluators: Evaluators, feeds: Mapping[str, Array], truth: Mapping[str, Array]) -> list[Finding]:
    """A half-precision graph rounded to half after every operator, as a device that has no other arithmetic does.

    CPU runtimes compute such graphs in float32 and hide what overflows.
    """
    try:
        found = evaluators.run("reference-strict", feeds)
    except WorkerError as error:
        return [Finding(check=CHECK, status="skipped", says=f"strict float16: {error}")]
    for name, array in truth.items():
        lost = np.isfinite(array) & ~np.isfinite(found[name]) if found[name].shape == array.shape else np.array(True)
        if lost.any():
            return [
                Finding(
                    check=CHECK,
                    status="fail",
                    says=f"in true float16 {name} has {int(lost.sum())} values that are not finite and should be",
                    remedy="keep what overflows in float32: mask fills, soft-caps, norms",
                )
            ]
    return [Finding(check=CHECK, status="pass", says="in true float16 every value stays finite")]


def _one(
    evaluators: Evaluators,
    runtime: str,
    optimise: bool,
    feeds: Mapping[str, Array],
    truth: Mapping[str, Array],
    plain: Mapping[str, float],
    dtype: str,
) -> Finding:
    name = f"{runtime}, optimisations {'on' if optimise else 'off'}"
    try:
        found = evaluators.run(runtime, feeds, optimise=optimise)
    except WorkerError as error:
        return Finding(
            check=CHECK, status="error", says=f"{name}: {error}", data={"died": isinstance(error, WorkerDied)}
        )
    differences = [
        difference(output, found.get(output), array, unit(plain.get(output), array, dtype))
        for output, array in truth.items()
    ]
    result = verdict(CHECK, differences, f"{name}: as near to float64 as its precision allows")
    if result.status == "pass":
        return result
    return Finding(check=CHECK, status="fail", says=f"{name}: {result.says}", data=result.data)


def _blame(findings: list[Finding]) -> list[Finding]:
    """A runtime that is right without its optimisations and wrong with them is at fault itself."""
    blamed = list(findings)
    for i, (off, on) in enumerate(pairwise(findings)):
        if off.status == "pass" and on.status == "fail" and "optimisations on" in on.says:
            blamed[i + 1] = Finding(
                check=CHECK,
                status="fail",
                says=f"the runtime is at fault, not the export: {on.says}, and without optimisations it is right",
                remedy="report it to the runtime; until then lower the optimisation level or disable the fusion",
                data=on.data,
            )
    return blamed
