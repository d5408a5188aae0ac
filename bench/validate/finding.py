"""Findings: what a check saw, with its evidence and a remedy, and the verdict that follows from all of them."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .compare import Difference

Status = Literal["fail", "error", "note", "skipped", "pass"]
ORDER: tuple[Status, ...] = ("error", "fail", "note", "skipped", "pass")  # worst first
STATUS_WIDTH, CHECK_WIDTH = 9, 12
EXIT = {"pass": 0, "fail": 1, "error": 2}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One answer. `fail` is a real difference or defect; `error` means that the question could not be put.

    `says` is the evidence in one sentence, `remedy` what to do about it, `data` the figures.
    """

    check: str
    status: Status
    says: str
    remedy: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


class Refusal(Exception):
    """The model or its inputs cannot be judged at all; carries the finding that says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.says)
        self.finding = finding


def refuse(check: str, says: str, remedy: str = "") -> Refusal:
    """A refusal with an `error` finding."""
    return Refusal(Finding(check=check, status="error", says=says, remedy=remedy))


@dataclass(frozen=True)
class Report:
    """All findings on one model, worst first."""

    path: str
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Literal["pass", "fail", "error"]:
        """A proven difference outweighs a question that could not be put."""
        statuses = {finding.status for finding in self.findings}
        return "fail" if "fail" in statuses else "error" if "error" in statuses else "pass"

    def to_json(self) -> dict[str, Any]:
        """The whole report as one JSON document, with numbers, texts, lists and objects only.

        `path` as given; `verdict` "pass", "fail" or "error"; `findings`, worst first, each with `check` ("integrity",
        "inputs", "structure", "semantics", "numerics", "shapes", "invariants" or "placement"), `status` ("error",
        "fail", "note", "skipped" or "pass"), `says` (the evidence), `remedy` ("" where there is none) and `data`: of a
        comparison the rms difference by output, of a tally over shapes an answer for each ("cases"), every difference
        ("wrong") or refusal ("refused"), of a first difference its value, node, op, module, line and weights, of a
        precision its errors ("layers"), of doubled weights their bytes, of a placement its fields.
        """
        return {"path": self.path, "verdict": self.verdict, "findings": [asdict(finding) for finding in self.findings]}

    def lines(self, width: int = 100) -> list[str]:
        """The report for people: a row for each finding, worst first, wrapped, with its remedy; the verdict last."""
        indent = STATUS_WIDTH + CHECK_WIDTH
        rows = []
        for finding in self.findings:
            head = f"{finding.status:<{STATUS_WIDTH}}{finding.check:<{CHECK_WIDTH}}"
            rows += _wrapped(head, finding.says, width, indent)
            rows += _wrapped(" " * indent + "-> ", finding.remedy, width, indent + 3) if finding.remedy else []
        counts = Counter(finding.status for finding in self.findings)
        count = ", ".join(f"{counts[status]} {status}" for status in ORDER if counts[status])
        return [*rows, f"{self.verdict}: {_printable(self.path)} ({count})"]


def verdict(check: str, differences: list[Difference], good: str, remedy: str = "", bad: str = "") -> Finding:
    """One finding for many outputs: the worst real difference, after what `bad` says of it, or that there is none."""
    real = [one for one in differences if one.real]
    data = {one.output: one.rms for one in differences if one.detail is None}
    if not real:
        return Finding(check=check, status="pass", says=good, data=data)
    worst = max(real, key=lambda one: one.rms / one.limit if one.limit else float("inf"))
    return Finding(check=check, status="fail", says=f"{bad}: {worst}" if bad else str(worst), remedy=remedy, data=data)


def _wrapped(head: str, text: str, width: int, indent: int) -> list[str]:
    first, *rest = textwrap.wrap(_printable(text), width - indent) or [""]
    return [head + first, *(" " * indent + line for line in rest)]


def _printable(text: str) -> str:
    """Names come from the file: none of them may steer a terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def report(path: str, findings: list[Finding]) -> Report:
    """The report of these findings, worst first and otherwise in the order of the checks."""
    return Report(path, tuple(sorted(findings, key=lambda finding: ORDER.index(finding.status))))
