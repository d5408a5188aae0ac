"""Suites: what to measure becomes a grid of cases, and a case that cannot run is known before anything runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..export.artifact import DTYPES
from ..export.source import SIZES, Source, SourceError, parse
from ..models.checkpoints import CheckpointError, read_config
from ..models.config import ConfigError, ModelConfig
from ..models.phases import phases
from ..models.presets import PRESETS
from ..runtimes import all_runtimes
from .records import Case
from .suitefile import SuiteError, known, lengths, names, read

__all__ = ["Group", "Suite", "SuiteError", "case", "groups", "known", "lengths", "load", "names", "sizes"]

DEFAULTS = {"size": "small", "batch": 1, "dtypes": ("fp32",), "seq": (), "past": (), "budget_s": 600, "limited": False}


@dataclass(frozen=True, kw_only=True)
class Suite:
    """What to measure. `seq` are lengths of forward passes, `past` cached tokens before a decode step of one token.

    `models` are what `isorun export` takes: presets, checkpoint folders, hf:FOLDER, module:factory. In a file the one
    model "all" stands for every preset.

    `budget_s` is the time for the whole run; the plan spends what exports leave over on the cases, evenly. It is a
    wish, and every case is measured, unless the run is `limited` to it: then what does not fit is left out.
    """

    name: str
    size: str
    models: tuple[str, ...]
    runtimes: tuple[str, ...]
    dtypes: tuple[str, ...] = ("fp32",)
    batch: int
    seq: tuple[int, ...]
    past: tuple[int, ...]
    budget_s: float
    limited: bool = False


@dataclass(frozen=True)
class Group:
    """The cases of one exported model, by length; each length is measured on every runtime in turn.

    `config` is None for a model that is not made of these modules: its operations and its limit are not known.
    """

    source: Source
    config: ModelConfig | None
    phase: str
    dtype: str
    lengths: tuple[int, ...]

    @property
    def model(self) -> str:
        """The model's name in records: a preset, a folder's name, or a factory."""
        folder = self.source.kind in ("checkpoint", "hf")
        return Path(self.source.name).name if folder else self.source.name

    @property
    def name(self) -> str:
        """Folder name of the export, free of what a file's name cannot hold."""
        size = f"@{self.source.size}" if self.source.kind == "preset" else ""
        dtype = f"-{self.dtype}" if self.dtype != "fp32" else ""
        return re.sub(r"[^\w.@-]+", "_", f"{self.model}{size}-{self.phase}{dtype}")

    def too_long(self, length: int) -> str | None:
        """Why this length cannot run, if it cannot."""
        tokens = length + 1 if self.phase == "step" else length
        limit = self.config.max_tokens if self.config else None
        if limit is None or tokens <= limit:
            return None
        return f"{tokens} tokens exceed the table of {limit} positions of {self.model}"


def load(name: str, **chosen: Any) -> Suite:
    """The suite of that name or path, with the fields in `chosen` that are not None put in place of its own.

    Raises:
        SuiteError: an unknown suite, key, model, runtime, dtype or size, a value of the wrong type, an empty grid, or a
            chosen length that a model cannot have.
    """
    content = {**DEFAULTS, **read(name), **{key: value for key, value in chosen.items() if value is not None}}
    for key in ("seq", "past"):
        least = 0 if key == "past" else 1  # a decode step may be the first
        content[key] = lengths(content[key], least) if content[key] != () else ()
    if list(content["models"]) == ["all"]:
        content["models"] = list(PRESETS)
    for key in ("models", "runtimes", "dtypes"):
        content[key] = tuple(dict.fromkeys(content[key]))
        if not content[key]:
            raise SuiteError(f"suite {name}: no {key}, so there is nothing to measure")
    suite = Suite(**content)
    known("runtime", suite.runtimes, all_runtimes())
    known("dtype", suite.dtypes, DTYPES)
    known("size", [suite.size], SIZES)
    _refuse_empty(suite)
    if chosen.get("seq") is not None:
        _refuse_too_long(suite, "forward")
    if chosen.get("past") is not None:
        _refuse_too_long(suite, "step")
    return suite


def groups(suite: Suite) -> list[Group]:
    """One group for each model, phase and dtype of the grid: forward passes, and steps where the model decodes.

    Raises:
        SuiteError: a model that is not there, or two of one name.
    """
    found = []
    for text in suite.models:
        source, config = _model(text, suite.size)
        for dtype in suite.dtypes:
            if suite.seq:
                found.append(Group(source, config, "forward", dtype, suite.seq))
            if suite.past and config is not None and "step" in phases(config):
                found.append(Group(source, config, "step", dtype, suite.past))
    for name, count in Counter(group.name for group in found).items():
        if count > 1:
            raise SuiteError(f"two models of this suite are both called {name!r}: measure them apart")
    return found


def case(suite: Suite, group: Group, length: int, runtime: str) -> Case:
    """The case of one length on one runtime."""
    step = group.phase == "step"
    return Case(
        model=group.model,
        size=group.source.size,
        phase=group.phase,
        dtype=group.dtype,
        runtime=runtime,
        batch=suite.batch,
        seq=1 if step else length,
        past=length if step else 0,
    )


def sizes(case: Case) -> dict[str, int]:
    """The free axes of a signature for a case; the source of an encoder-decoder is as long as what is decoded."""
    return {"batch": case.batch, "sequence": case.seq, "past": case.past, "source": max(1, case.length)}


def _model(text: str, size: str) -> tuple[Source, ModelConfig | None]:
    """Where a model comes from, and what it is made of where that is known."""
    try:
        source = parse(text, size)
        if source.kind == "preset":
            return source, PRESETS[source.name].at(source.size)  # type: ignore[arg-type]  # checked by parse
        if source.kind == "checkpoint":
            return source, read_config(Path(source.name))[1]
    except (SourceError, CheckpointError, ConfigError) as error:
        raise SuiteError(str(error)) from None
    if source.kind == "file":
        raise SuiteError(f"{text}: the model behind a file is not known, so its outputs could not be checked")
    return source, None


def _refuse_empty(suite: Suite) -> None:
    if not groups(suite):
        what = "past is given, and none of the models decodes" if suite.past else "neither seq nor past is given"
        raise SuiteError(f"suite {suite.name}: {what}, so there is nothing to measure")


def _refuse_too_long(suite: Suite, phase: str) -> None:
    planned: Iterable[Group] = (group for group in groups(suite) if group.phase == phase)
    for group in planned:
        for length in group.lengths:
            reason = group.too_long(length)
            if reason:
                raise SuiteError(f"{reason}: choose shorter lengths, or leave the model out with --models")
