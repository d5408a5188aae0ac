"""Suites: a TOML file becomes a grid of cases, and a case that cannot run is known before anything runs."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..models.config import SIZES, ModelConfig
from ..models.phases import phases
from ..models.presets import PRESETS
from ..runtimes import all_runtimes
from .records import Case

FOLDER = Path(__file__).parent / "suites"


class SuiteError(ValueError):
    """A suite, or a choice on the command line, that cannot be run; the message names what and why."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """What to measure. `seq` are lengths of forward passes, `past` cached tokens before a decode step of one token.

    In a file the one model "all" stands for every preset.

    `budget_s` is the time for the whole run; the plan spends what exports leave over on the cases, evenly.
    """

    name: str
    size: str
    models: tuple[str, ...]
    runtimes: tuple[str, ...]
    batch: int
    seq: tuple[int, ...]
    past: tuple[int, ...]
    budget_s: float


@dataclass(frozen=True)
class Group:
    """The cases of one exported model, by length; each length is measured on every runtime in turn."""

    config: ModelConfig
    phase: str
    lengths: tuple[int, ...]

    @property
    def name(self) -> str:
        """Folder name of the export."""
        return f"{self.config.name}-{self.phase}"

    def too_long(self, length: int) -> str | None:
        """Why this length cannot run, if it cannot."""
        tokens = length + 1 if self.phase == "step" else length
        limit = self.config.max_tokens
        if limit is None or tokens <= limit:
            return None
        return f"{tokens} tokens exceed the table of {limit} positions of {self.config.name}"


def names() -> tuple[str, ...]:
    """The suites that come with the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load(name: str, **chosen: Any) -> Suite:
    """The suite of that name, with the fields in `chosen` that are not None put in place of its own.

    Raises:
        SuiteError: an unknown suite, key, model, runtime or size, an empty grid, or a chosen length that a model
            cannot have.
    """
    known("suite", [name], names())
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    known("key", content, [field.name for field in fields(Suite)], where=f"suite {name}")
    content = {"name": name, **content, **{key: value for key, value in chosen.items() if value is not None}}
    for key in ("seq", "past"):
        content[key] = lengths(content[key])
    if list(content["models"]) == ["all"]:
        content["models"] = list(PRESETS)
    for key in ("models", "runtimes"):
        content[key] = tuple(dict.fromkeys(content[key]))
    suite = Suite(**content)
    known("model", suite.models, PRESETS)
    known("runtime", suite.runtimes, all_runtimes())
    known("size", [suite.size], SIZES)
    if chosen.get("seq") is not None:
        _refuse_too_long(suite, "forward")
    if chosen.get("past") is not None:
        _refuse_too_long(suite, "step")
    return suite


def known(kind: str, given: Iterable[str], choices: Collection[str], where: str = "") -> None:
    """Refuse a name that is not among the choices, with the near matches.

    Raises:
        SuiteError: the first unknown name.
    """
    for name in given:
        if name not in choices:
            near = get_close_matches(name, list(choices), n=3, cutoff=0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(choices)}"
            raise SuiteError(f"{where + ': ' if where else ''}unknown {kind} {name!r}; {hint}")


def lengths(text: str) -> tuple[int, ...]:
    """Lengths from "64,100", or "128:8192:2x" (doubling), or "128:1024:+128" (in steps).

    Raises:
        SuiteError: not of these forms, or no length of at least 1 in it.
    """
    try:
        if ":" not in text:
            found = tuple(int(part) for part in text.split(","))
        else:
            low, high, step = text.split(":")
            found = _range(int(low), int(high), step)
    except ValueError:
        raise SuiteError(f"lengths {text!r}: write 64,128 or 64:1024:2x or 64:1024:+64") from None
    if not found or min(found) < 1:
        raise SuiteError(f"lengths {text!r}: no length of at least 1 in it")
    return tuple(sorted(set(found)))


def _range(low: int, high: int, step: str) -> tuple[int, ...]:
    factor = int(step[:-1]) if step.endswith("x") else 1
    summand = int(step[1:]) if step.startswith("+") else 0
    if low < 1 or (factor < 2 and summand < 1):
        raise ValueError(step)
    found = []
    while low <= high:
        found.append(low)
        low = low * factor + summand
    return tuple(found)


def groups(suite: Suite) -> list[Group]:
    """One group for each model and phase of the grid: forward passes, and steps where the model decodes."""
    found = []
    for name in suite.models:
        config = PRESETS[name].at(suite.size)  # type: ignore[arg-type]  # checked by load
        found.append(Group(config, "forward", suite.seq))
        if "step" in phases(config):
            found.append(Group(config, "step", suite.past))
    return found


def case(suite: Suite, group: Group, length: int, runtime: str) -> Case:
    """The case of one length on one runtime."""
    step = group.phase == "step"
    return Case(
        model=group.config.name,
        size=suite.size,
        phase=group.phase,
        dtype="fp32",
        runtime=runtime,
        batch=suite.batch,
        seq=1 if step else length,
        past=length if step else 0,
    )


def sizes(case: Case) -> dict[str, int]:
    """The free axes of a signature for a case; the source of an encoder-decoder is as long as what is decoded."""
    return {"batch": case.batch, "sequence": case.seq, "past": case.past, "source": case.length}


def _refuse_too_long(suite: Suite, phase: str) -> None:
    for group in groups(suite):
        for length in group.lengths:
            reason = group.too_long(length) if group.phase == phase else None
            if reason:
                raise SuiteError(f"{reason}: choose shorter lengths, or leave the model out with --models")
