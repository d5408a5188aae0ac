"""Where two runs took place: which differences make their times incomparable, and which are only worth knowing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...bench.records import Run
from ..format import plain

# Each of these changes times by itself. What only says how a graph was made, as the version of the exporter does, is
# rather what one wants to compare; and so is isorun's own.
FORBIDDING = (
    *("processor", "cores", "threads", "affinity", "gpu", "driver", "cuda", "precision", "provider"),
    *(f"versions.{name}" for name in ("torch", "onnxruntime", "onnxruntime-gpu", "openvino", "tensorrt")),
)
# Measured, or about what has no time.
_LEFT_OUT = ("matmul_gflops", "memory_gbs", "overhead_ns", "precisions", "runtimes_missing")
Effect = Literal["forbids", "allowed", "informs"]


class CompareError(ValueError):
    """Runs that must not be compared, or a question that cannot be asked of them; the message names what and why."""


@dataclass(frozen=True)
class Difference:
    """One fact that differs: its key, its value in each run ("" where it was not recorded), and what follows."""

    key: str
    values: tuple[str, ...]
    effect: Effect


def differences(runs: Sequence[Run], allowed: Collection[str] = ()) -> tuple[Difference, ...]:
    """The facts that are not the same in all runs; one that a run did not record forbids nothing."""
    facts = [dict(_facts(run)) for run in runs]
    keys = dict.fromkeys(key for known in facts for key in known)
    rows = [(key, tuple(known.get(key, "") for known in facts)) for key in keys]
    return tuple(Difference(key, values, _effect(key, values, allowed)) for key, values in rows if len(set(values)) > 1)


def check(found: Iterable[Difference], allowed: Collection[str] = ()) -> None:
    """Refuse runs that differ in a forbidding fact.

    Raises:
        CompareError: with the keys, the values, and how to allow them; or a key in `allowed` that forbids nothing.
    """
    for key in allowed:
        if not any(_covers(key, forbidding) or _covers(forbidding, key) for forbidding in FORBIDDING):
            raise CompareError(f"--allow-different {key}: no such key; there are {', '.join(FORBIDDING)}")
    forbidden = [difference for difference in found if difference.effect == "forbids"]
    if forbidden:
        named = "; ".join(f"{d.key}: {' against '.join(value or '(none)' for value in d.values)}" for d in forbidden)
        keys = " ".join(f"--allow-different {d.key}" for d in forbidden)
        raise CompareError(f"not the same environment, so times would not show the code: {named}; to compare: {keys}")


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    for key, value in run.environment.items():
        if key not in _LEFT_OUT:
            yield from _flat(str(key), value)
    placed: dict[str, set[str]] = {}
    for m in run.measurements:
        if m.placement:
            known = {key: getattr(m.placement, key) for key in ("provider", "precision", "threads")}
            for key, value in {**known, **m.placement.facts}.items():
                placed.setdefault(f"{key}.{m.case.runtime}", set()).add(str(value))
    yield from ((key, ", ".join(sorted(values))) for key, values in placed.items())


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for part, item in value.items():
            yield from _flat(f"{key}.{part}", item)
    elif plain(value):
        yield key, plain(value)


def _effect(key: str, values: Sequence[str], allowed: Collection[str]) -> Effect:
    recorded = {value for value in values if value}
    if len(recorded) < 2 or not any(_covers(forbidding, key) for forbidding in FORBIDDING):
        return "informs"
    return "allowed" if any(_covers(name, key) for name in allowed) else "forbids"


def _covers(name: str, key: str) -> bool:
    return key == name or key.startswith(f"{name}.")
