"""Where a difference begins: the first value that differs, with its module and the line of source behind it."""

from __future__ import annotations

from collections.abc import Iterable

from ...models.signature import Feeds
from ..client import WorkerError
from .candidate import Candidate
from .evaluators import Evaluators
from .finding import Finding
from .semantics import CHECK
from .walk import Step

SHOWN = 3  # weights that a sentence names


def first(steps: Iterable[Step]) -> Step | None:
    """The first value that differs although its inputs agree."""
    return next((step for step in steps if step.differs), None)


def explain(
    candidate: Candidate, evaluators: Evaluators, findings: list[Finding], feeds: Feeds | None
) -> list[Finding]:
    """The findings, and after them the first value that differs on inputs on which graph and source do; None: none."""
    if feeds is None:
        return findings
    try:
        step = first(evaluators.walk(feeds, candidate.opset))
    except WorkerError as error:
        note = Finding(check=CHECK, status="skipped", says=f"where the difference begins: {error}")
        return [*findings, note]
    return [*findings, *([describe(step)] if step else [])]


def describe(step: Step) -> Finding:
    """The finding on one step."""
    where = [f"in {step.module}" if step.module else "", f"from {step.line}" if step.line else ""]
    place = ", ".join(part for part in where if part)
    made = f"{step.op} {step.node!r}" + (f" after {len(step.within)} nodes of one operator" if step.within else "")
    if step.weights:
        count = len(step.weights) - SHOWN
        names = ", ".join(step.weights[:SHOWN]) + (f" and {count} more" if count > 0 else "")
        why = f"its inputs agree, and the graph holds other values of {names}"
    else:
        why = f"its inputs agree: {step.says}"
    says = f"first difference: {step.value!r}, made by {made}{', ' if place else ''}{place}; {why}"
    data = {
        "value": step.value,
        "node": step.node,
        "op": step.op,
        "module": step.module,
        "line": step.line,
        "weights": list(step.weights),
    }
    return Finding(check=CHECK, status="fail", says=says, data=data)
