"""Findings: what a check saw, with its evidence and a remedy, and the verdict that follows from all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["fail", "error", "note", "skipped", "pass"]
ORDER: tuple[Status, ...] = ("error", "fail", "note", "skipped", "pass")  # worst first
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
        """The whole report as one JSON document."""
        return {"path": self.path, "verdict": self.verdict, "findings": [asdict(finding) for finding in self.findings]}


def report(path: str, findings: list[Finding]) -> Report:
    """The report of these findings, worst first and otherwise in the order of the checks."""
    return Report(path, tuple(sorted(findings, key=lambda finding: ORDER.index(finding.status))))
