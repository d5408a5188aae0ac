"""A contest of real exports: results, reasons, and wrong outputs; and of made-up processes that differ by nature."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from isorun.bench import contest as module
from isorun.bench import truth
from isorun.bench.client import WorkerDied
from isorun.bench.contest import FLEETS, ROUNDS, Entry, Result, contest
from isorun.export.artifact import ExportedModel

Exported = Callable[[str, str], ExportedModel]
SIZES = {"batch": 1, "sequence": 4}


def test_entries_are_timed_or_say_why_not(exported: Exported, tmp_path: Path) -> None:
    folder = exported("gpt2", "forward").folder
    entries = {
        "a": Entry(folder),
        "b": Entry(folder, session={"enable_cpu_mem_arena": "0"}),
        "none": Entry(tmp_path),
        "odd": Entry(folder, session={"graph_optimization_level": "ORT_ENABLE_MAGIC"}),
    }
    file = tmp_path / "truth.npz"
    truth.write(str(folder), SIZES, str(file))
    found = contest(entries, SIZES, truth=file, budget_s=0.1, fleets=3)
    first, second = found["a"], found["b"]
    assert isinstance(first, Result)
    assert isinstance(second, Result)
    assert [len(blocks) for blocks in first.fleets] == [len(blocks) for blocks in second.fleets] == [ROUNDS] * 3
    assert first.interval.low <= first.seconds <= first.interval.high
    assert second.over(first).ratio == pytest.approx(1 / first.over(second).ratio)
    assert "no artifact.json" in str(found["none"])
    assert "ORT_ENABLE_MAGIC" in str(found["odd"])


def test_wrong_outputs_are_not_timed(exported: Exported, tmp_path: Path) -> None:
    folder = exported("gpt2", "forward").folder
    file = tmp_path / "truth.npz"
    truth.write(str(folder), SIZES, str(file))
    with np.load(file) as archive:
        arrays = dict(archive)
    arrays["logits"] = arrays["logits"] + 1e-3
    np.savez(file, **arrays)
    found = contest({"a": Entry(folder)}, SIZES, truth=file, budget_s=0.1, fleets=3)
    assert "outputs wrong: logits" in str(found["a"])


class Fake:
    """A process whose calls take what its model takes, times a factor of its own, with 0.5 % noise a block."""

    rng = np.random.default_rng(0)
    deviation = 0.02
    made = 0
    now_s = 0.0
    dies_at: int | None = None

    def __init__(self, log: Path, threads: int) -> None:
        Fake.made += 1
        self.number = Fake.made
        self.factor = float(np.exp(self.rng.normal(0, self.deviation)))
        self.call_s = 0.0

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ask(self, op: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        if op == "block" and self.number == self.dies_at:
            raise WorkerDied("killed by SIGKILL")
        if op == "load":
            self.call_s = self.factor * float(Path(arguments["folder"]).name)
        Fake.now_s += max(arguments.get("seconds", 0.0), self.call_s)
        noise = float(np.exp(self.rng.normal(0, 0.005)))
        return {
            "load": {"prepare_s": 0.1},
            "stage": {"errors": []},
            "block": {"ns": [int(1e9 * self.call_s * noise)]},
            "facts": {"memory": {"arena": 3, "activations": 4}},
        }[op]


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    monkeypatch.setattr(module, "Worker", Fake)
    monkeypatch.setattr(module.time, "monotonic", lambda: Fake.now_s)
    for name, value in {"rng": np.random.default_rng(0), "made": 0, "now_s": 0.0, "dies_at": None}.items():
        monkeypatch.setattr(Fake, name, value)
    return Fake


def timed(seconds: dict[str, float], budget_s: float = 60.0) -> dict[str, Result | str]:
    return contest({name: Entry(Path(f"/{s}")) for name, s in seconds.items()}, SIZES, budget_s=budget_s)


def words(seconds: dict[str, float], count: int) -> list[str]:
    found = [timed(seconds) for _ in range(count)]
    return [other.over(base).word for base, other in map(dict.values, found) if isinstance(base, Result)]  # type: ignore[union-attr]


def test_equal_entries_are_seldom_told_apart_though_their_processes_differ(fakes: type[Fake]) -> None:
    found = words({"base": 1.0, "other": 1.0}, 400)
    assert len(found) == 400
    assert found.count("faster") + found.count("slower") <= 0.05 * 400


def test_what_is_slower_by_more_than_processes_differ_is_seen(fakes: type[Fake]) -> None:
    assert words({"base": 1.0, "other": 1.0 + 3 * 2**0.5 * fakes.deviation}, 100).count("slower") >= 90


def test_a_fleet_is_one_ratio_and_its_processes_are_its_own(fakes: type[Fake]) -> None:
    base, other = timed({"base": 1.0, "other": 0.5}).values()
    assert isinstance(base, Result)
    assert isinstance(other, Result)
    assert fakes.made == 2 * FLEETS
    assert base.working_bytes == 7
    ratios = [np.median(np.divide(one, two)) for one, two in zip(base.fleets, other.fleets, strict=True)]
    assert other.over(base).ratio == pytest.approx(np.median(ratios))
    assert base.seconds == pytest.approx(median(np.median(base.fleets, axis=1)))


def test_long_calls_get_fewer_fleets_but_three(fakes: type[Fake]) -> None:
    (found,) = timed({"long": 10.0}, budget_s=20.0).values()
    assert isinstance(found, Result)
    assert len(found.fleets) == 3


def test_an_entry_that_dies_in_a_later_fleet_is_out_and_the_others_go_on(fakes: type[Fake]) -> None:
    fakes.dies_at = 4
    found = timed({"base": 1.0, "other": 1.0})
    assert found["other"] == "killed by SIGKILL"
    assert isinstance(found["base"], Result)
    assert len(found["base"].fleets) == FLEETS
    assert fakes.made == 2 * 2 + FLEETS - 2
