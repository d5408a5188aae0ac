"""What a run leaves behind: cases, measurements and verdicts, one JSON line each. Standard library only.

A record holds identity, raw samples and distances. Statistics are derived from it and never stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Literal

from ..runtimes.base import Placement
from .typed import wrong_field

SCHEMA = 1
PARITY_LIMIT = 3.0  # error in units of torch's own beyond which outputs are wrong, and no time is taken or shown
Status = Literal["ok", "skipped", "failed"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """The identity of one measurement.

    `seq` is the number of new tokens of one call, `past` the number of cached ones before them. A `forward` case has
    past 0; a decode step has phase `step` and usually seq 1.
    """

    model: str
    size: str
    phase: str
    dtype: str
    runtime: str
    batch: int
    seq: int
    past: int

    @property
    def length(self) -> int:
        """The axis along which cost grows: new tokens in `forward`, cached tokens in `step`."""
        return self.past if self.phase == "step" else self.seq

    @property
    def point(self) -> Case:
        """The case whatever its runtime: all runtimes of a point are measured in turn, or none."""
        return replace(self, runtime="")

    def __str__(self) -> str:
        return (
            f"{self.model}@{self.size} {self.phase} {self.dtype} {self.runtime} "
            f"batch {self.batch} seq {self.seq} past {self.past}"
        )


@dataclass(frozen=True, kw_only=True)
class OutputError:
    """Distance of one output of the timed session from float64 truth.

    `rms` and `max_abs` are of (runtime - truth); `scale` is the rms of truth itself. `ruler_rms` is the rms of
    (torch in the same dtype on the CPU - truth): the rounding error that this precision costs in any case. `detail`
    says what is wrong when the values cannot be compared at all (another shape, NaN).
    """

    name: str
    rms: float | None
    max_abs: float | None
    scale: float
    ruler_rms: float
    detail: str | None = None

    @property
    def ratio(self) -> float | None:
        """Error in units of the reference's own rounding error; None when there is nothing to divide."""
        if self.rms is None:
            return None
        if self.rms == 0:
            return 0.0
        return self.rms / self.ruler_rms if self.ruler_rms > 0 else float("inf")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One case on one runtime: raw samples by block, or the reason why there are none.

    `blocks_ns[i]` pairs in time with `blocks_ns[i]` of the other runtimes of the same case. `stopped` says why the
    timing ended: "precision" (the interval was narrow enough) or "budget". `peak_bytes` is the process's peak resident
    memory, and `memory` its parts (see `memory`): weights, cache, activations, arena, beside what was predicted.
    `flops` counts what the model computes in one call, `graph_flops` and `graph_bytes` what its graph does (see
    `graph_cost`), and `expected_ns` is the time of both at the rates that this runtime reached on bare products.
    `twin_ns` are the blocks of a second process of the same runtime (see `twins`), paired in time with `blocks_ns`.
    `dense_flops` are the `flops` of the same model if it read every key; None where it does, or nobody knows.
    """

    case: Case
    status: Status
    reason: str | None = None
    blocks_ns: tuple[tuple[int, ...], ...] = ()
    prepare_s: float | None = None
    peak_bytes: int | None = None
    flops: int | None = None
    errors: tuple[OutputError, ...] = ()
    placement: Placement | None = None
    stopped: str | None = None
    graph_flops: int | None = None
    graph_bytes: int | None = None
    memory: Mapping[str, int] | None = None
    expected_ns: float | None = None
    dense_flops: int | None = None
    twin_ns: tuple[tuple[int, ...], ...] = ()

    @property
    def work(self) -> float | None:
        """What theory says that the time goes by: the expected time, or operations alone where bytes are not known."""
        return self.expected_ns or self.flops or self.graph_flops

    @cached_property
    def block_medians_ns(self) -> tuple[float, ...]:
        """The median of each block, in nanoseconds."""
        return tuple(median(block) for block in self.blocks_ns if block)

    @cached_property
    def twin_medians_ns(self) -> tuple[float, ...]:
        """The same of the second process; empty where there was none."""
        return tuple(median(block) for block in self.twin_ns if block)

    @property
    def twin_median_ns(self) -> float:
        """The median of these; 0 where there was none."""
        return median(self.twin_medians_ns) if self.twin_medians_ns else 0.0

    @cached_property
    def median_ns(self) -> float | None:
        """The median of the block medians, in nanoseconds; None when nothing was timed."""
        return median(self.block_medians_ns) if self.block_medians_ns else None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer to one yes-or-no question about an exported model, with the distance and the limit it was held to."""

    model: str
    size: str
    phase: str
    dtype: str
    check: str
    status: Literal["pass", "fail", "error"]
    distance: float | None
    limit: float | None
    detail: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run folder as read back. `problems` names each line that could not be read."""

    folder: Path
    header: Mapping[str, Any]
    measurements: tuple[Measurement, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    problems: tuple[str, ...] = field(default=())

    @property
    def environment(self) -> Mapping[str, Any]:
        """What the header says of the place; nothing where that cannot be read."""
        found = self.header.get("environment")
        return found if isinstance(found, Mapping) else {}


def to_line(record: Measurement | Verdict) -> str:
    """One record as one JSON line (without the line break)."""
    return json.dumps({"kind": type(record).__name__.lower(), **asdict(record)}, separators=(",", ":"))


def from_line(line: str) -> Measurement | Verdict:
    """The record of one JSON line.

    Raises:
        ValueError: the line is no record of this schema.
    """
    try:
        data = json.loads(line)
        kind = data.pop("kind")
        if kind not in ("verdict", "measurement"):
            raise ValueError(f"unknown kind {kind!r}")
        record = Verdict(**data) if kind == "verdict" else _measurement(data)
        wrong = wrong_field(record)
    except (TypeError, KeyError, AttributeError, RecursionError, ValueError) as error:
        raise ValueError(f"not a record: {error}") from None
    if wrong:
        raise ValueError(f"not a record: {wrong}")
    return record


def _measurement(data: dict[str, Any]) -> Measurement:
    data["case"] = Case(**data["case"])
    data["blocks_ns"] = tuple(tuple(block) for block in data["blocks_ns"])
    data["twin_ns"] = tuple(tuple(block) for block in data.get("twin_ns", ()))  # runs before the control have none
    data["errors"] = tuple(OutputError(**error) for error in data["errors"])
    if data["placement"] is not None:
        data["placement"] = Placement(**data["placement"])
    return Measurement(**data)
