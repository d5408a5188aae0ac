"""What a claim is, and what came of it. Standard library only: a report reads this without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from ..typed import wrong_field

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

    @classmethod
    def from_json(cls, data: Any) -> Result:
        """What `to_json` wrote; the verdict is found again.

        Raises:
            ValueError: it is no result.
        """
        try:
            given = {key: value for key, value in data.items() if key != "verdict"}
            found = cls(**{**given, "parts": tuple(Part(**part) for part in given["parts"])})
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a result: {error}") from None
        if wrong := wrong_field(found):
            raise ValueError(f"not a result: {wrong}")
        return found


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

    @classmethod
    def from_json(cls, data: Any) -> Results:
        """What `to_json` wrote.

        Raises:
            ValueError: it is something else.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("results"), list):
            raise ValueError("no results")
        results = tuple(map(Result.from_json, data["results"]))
        found = cls(created=data.get("created", ""), environment=data.get("environment", {}), results=results)
        if wrong := wrong_field(found):
            raise ValueError(wrong)
        return found
