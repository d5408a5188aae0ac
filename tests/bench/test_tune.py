"""Tuning: candidates differ in one thing, what helps is put together, and the choice is measured again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from isorun.bench import tune
from isorun.bench.contest import Entry, Result
from isorun.bench.tune import BASE, Setting, settings
from isorun.export.artifact import ExportedModel
from isorun.export.source import Source

Exported = Callable[[str, str], ExportedModel]


def test_each_candidate_differs_from_the_base_in_one_thing() -> None:
    found = settings(threads=None)
    base = found.pop(BASE)
    assert base == Setting()
    for name, setting in found.items():
        changed = [setting.target != "portable", bool(setting.session), setting.threads != 1]
        assert sum(changed) == 1 or name == "graph for ort-cpu", name
    assert settings(threads=3)[BASE].threads == 3
    assert {setting.threads for setting in settings(threads=3).values()} == {3}


def test_settings_join() -> None:
    base = Setting()
    first = Setting(session={"disabled_optimizers": "A B"})
    second = Setting("ort-cpu", {"disabled_optimizers": "B C", "enable_mem_pattern": "0"}, 2)
    assert first.joined(second, base) == Setting(
        "ort-cpu", {"disabled_optimizers": "A B C", "enable_mem_pattern": "0"}, 2
    )
    assert second.joined(first, base).target == "ort-cpu"


def fake(times: Callable[[Entry], float]) -> Callable[..., dict[str, Result | str]]:
    """A contest in which an entry takes what `times` says, within one per cent."""

    def contest(entries: Mapping[str, Entry], *_: object, **__: object) -> dict[str, Result | str]:
        return {
            name: Result(tuple((times(entry) * (1 + 0.001 * i),) for i in range(5)), 0)
            for name, entry in entries.items()
        }

    return contest


Tuned = Callable[[Callable[[Entry], float]], tuple[tune.Trial, ExportedModel]]


@pytest.fixture
def tuned(exported: Exported, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tuned:
    """The chosen trial and what is written, when entries take these times; exports are copies of one."""

    def export(source: Source, phase: str, folder: Path, *, target: str, prove: object) -> ExportedModel:
        there = exported("gpt2", phase)
        shutil.copytree(there.folder, folder)
        replace(there, folder=folder, target=target).write_manifest()
        return ExportedModel.open(folder)

    def run(times: Callable[[Entry], float]) -> tuple[tune.Trial, ExportedModel]:
        monkeypatch.setattr(tune, "export", export)
        monkeypatch.setattr(tune, "contest", fake(times))
        source, sizes = exported("gpt2", "forward").source, {"batch": 1, "sequence": 4}
        trials = tune.tune(source, "forward", tmp_path / "out", sizes, threads=1, budget_s=1)
        return trials[-1], ExportedModel.open(tmp_path / "out")

    return run


def test_what_helps_is_put_together_and_written(tuned: Tuned) -> None:
    def times(entry: Entry) -> float:
        session = entry.session or {}
        slow = 1.0 if entry.folder.name == "portable" else 0.5
        return slow * (0.8 if session.get("session.intra_op.allow_spinning") == "0" else 1.0)

    best, artifact = tuned(times)
    assert best.gain is not None
    assert best.gain.ratio == pytest.approx(1 / 0.4)
    assert artifact.target == "ort-cpu"
    assert artifact.session["session.intra_op.allow_spinning"] == "0"
    assert "2.50 times as fast" in artifact.notes[-1]
    assert sorted(file.name for file in artifact.folder.iterdir()) == ["artifact.json", *artifact.files]


def test_without_a_gain_the_base_is_written(tuned: Tuned) -> None:
    best, artifact = tuned(lambda entry: 1.0)
    assert best.name == BASE
    assert (artifact.target, artifact.session) == ("portable", {})
    assert "nothing was faster" in artifact.notes[-1]
