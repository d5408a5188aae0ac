"""Suites: what to measure becomes a grid of cases, and a case that cannot run is known before anything runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ..export.artifact import DTYPES
from ..export.source import SIZES, Source, SourceError, parse
from ..models.checkpoints import CheckpointError, read_config
from ..models.config import ConfigError, ModelConfig
from ..models.phases import phases
from ..models.presets import PRESETS
from ..runtimes import all_runtimes
from .records import Case
from .suitefile import SuiteError, known, lengths, names, read

__all__ = ["Group", "Point", "Suite", "SuiteError", "groups", "known", "lengths", "load", "names", "sizes"]

DEFAULTS = {"size": "small", "batch": 1, "dtypes": ("fp32",), "seq": (), "past": (), "budget_s": 600, "limited": False}
LEAST = {"batch": 1, "seq": 1, "past": 0}  # a decode step may be the first


@dataclass(frozen=True, kw_only=True)
class Suite:
    """What to measure. `seq` are lengths of forward passes, `past` cached tokens before a decode step of one token,
    and each of them is measured with each number of rows in `batch`.

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
    batch: tuple[int, ...]
    seq: tuple[int, ...]
    past: tuple[int, ...]
    budget_s: float
    limited: bool = False


class Point(NamedTuple):
    """Where a group is measured: the rows of a call, and the length along which its cost grows."""

    batch: int
    length: int

    def __str__(self) -> str:
        return str(self.length) if self.batch == 1 else f"{self.batch} x {self.length}"


@dataclass(frozen=True)
class Group:
    """The cases of one exported model, by batch and length; each point is measured on every runtime in turn.

    `config` is None for a model that is not made of these modules: its operations and its limit are not known.
    """

    source: Source
    config: ModelConfig | None
    phase: str
    dtype: str
    points: tuple[Point, ...]

    @property
    def lines(self) -> list[list[Point]]:
        """The points of each batch: along one of these lines, and no other, time grows with length."""
        return [list(line) for _, line in groupby(self.points, lambda point: point.batch)]

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

    def case(self, point: Point, runtime: str) -> Case:
        """The case of one point on one runtime."""
        step = self.phase == "step"
        return Case(
            model=self.model,
            size=self.source.size,
            phase=self.phase,
            dtype=self.dtype,
            runtime=runtime,
            batch=point.batch,
            seq=1 if step else point.length,
            past=point.length if step else 0,
        )

    def too_long(self, length: int, table: int | None = None) -> str | None:
        """Why this length cannot run, if it cannot; `table` are the positions of a model whose export alone tells."""
        tokens = length + 1 if self.phase == "step" else length
        limit = self.config.max_tokens if self.config else table
        if limit is None or tokens <= limit:
            return None
        return f"{tokens} tokens exceed the table of {limit} positions of {self.model}"


def load(name: str, **chosen: Any) -> Suite:
    """The suite of that name or path, with the fields in `chosen` that are not None put in place of its own.

    Raises:
        SuiteError: an unknown suite, key, model, runtime, dtype or size, a value of the wrong type, an empty grid, or a
            chosen length that no model can have.
    """
    content = {**DEFAULTS, **read(name), **{key: value for key, value in chosen.items() if value is not None}}
    for key, least in LEAST.items():
        content[key] = lengths(content[key], least, what=key) if content[key] != () else ()
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
        SuiteError: a model that is not there or whose phases cannot be told, or two of one name.
    """
    found = []
    for text in suite.models:
        source, config = _model(text, suite.size)
        for dtype in suite.dtypes:
            if suite.seq:
                found.append(Group(source, config, "forward", dtype, _points(suite, suite.seq)))
            if suite.past and "step" in (phases(config) if config else _phases(source)):
                found.append(Group(source, config, "step", dtype, _points(suite, suite.past)))
    for name, count in Counter(group.name for group in found).items():
        if count > 1:
            raise SuiteError(f"two models of this suite are both called {name!r}: measure them apart")
    return found


def sizes(case: Case) -> dict[str, int]:
    """The free axes of a signature for a case; the source of an encoder-decoder is as long as what is decoded."""
    return {"batch": case.batch, "sequence": case.seq, "past": case.past, "source": max(1, case.length)}


def _points(suite: Suite, lengths: Iterable[int]) -> tuple[Point, ...]:
    """Each length at each batch, a line a batch."""
    return tuple(Point(batch, length) for batch in suite.batch for length in lengths)


@lru_cache  # a factory builds its model to tell
def _phases(source: Source) -> Collection[str]:
    """The phases of a model that is not made of these modules, as its own code tells them."""
    try:
        return source.phases()
    except SourceError as error:
        raise SuiteError(str(error)) from None


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
    """A length that some models cannot have is a row that says so; one that none can have was mistyped."""
    planned = [group for group in groups(suite) if group.phase == phase]
    for point in planned[0].points if planned else ():
        reasons = [group.too_long(point.length) for group in planned]
        if all(reasons):
            raise SuiteError(f"{reasons[0]}: choose shorter lengths")
