"""What a claim is, and what came of it. Standard library only: a report reads this without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

Word = Literal["confirmed", "refuted", "confirmed in part", "not tried"]
Kind = Literal["claim", "error"]
Call = Callable[[], object]


class Watch(Protocol):
    """How an experiment takes times; tests put a fake in its place."""

    def __call__(self, calls: Mapping[str, Call], seconds: float = 0.4) -> Mapping[str, tuple[float, ...]]:
        """Block medians in nanoseconds by name, for about so many seconds a call; blocks pair in time."""


@dataclass(frozen=True)
class Part:
    """One part of a statement: what it says, whether a run bears it out, and the figures that were measured."""

    says: str
    holds: bool
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of the source document. An `error` is one that is known to be wrong; `right` is what is right.

    `key` is the number of the claim, or E and the number of the error.
    """

    key: str
    statement: str
    experiment: Callable[[Watch], Sequence[Part]]
    right: str = ""

    @property
    def kind(self) -> Kind:
        """Which of the two lists it stands in."""
        return "error" if self.key.startswith("E") else "claim"

    @property
    def order(self) -> tuple[bool, int]:
        """Claims before errors, by number."""
        return self.kind == "error", int(self.key.removeprefix("E"))


@dataclass(frozen=True, kw_only=True)
class Result:
    """A claim after its experiment; `reason` says why it could not be run."""

    key: str
    kind: Kind
    statement: str
    right: str
    parts: tuple[Part, ...]
    seconds: float
    reason: str | None = None

    @property
    def word(self) -> Word:
        """The verdict: all parts hold, none does, or some do."""
        if not self.parts:
            return "not tried"
        held = sum(part.holds for part in self.parts)
        return "confirmed" if held == len(self.parts) else "confirmed in part" if held else "refuted"

    def to_json(self) -> dict[str, Any]:
        """This result with its verdict."""
        return {**asdict(self), "verdict": self.word}


@dataclass(frozen=True, kw_only=True)
class Results:
    """All results, with when and where they were found."""

    created: str
    environment: Mapping[str, Any]
    results: tuple[Result, ...]

    def of(self, kind: Kind) -> tuple[Result, ...]:
        """The claims, or the errors."""
        return tuple(result for result in self.results if result.kind == kind)

    @property
    def complete(self) -> bool:
        """Whether every experiment ran."""
        return all(result.parts for result in self.results)

    def to_json(self) -> dict[str, Any]:
        """One JSON document."""
        results = [result.to_json() for result in self.results]
        return {"created": self.created, "environment": dict(self.environment), "results": results}
