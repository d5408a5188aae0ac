"""The certificate over the zoo: what is to be done, what is recorded, and what the table says."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isorun.bench import zoo
from isorun.cli import app

USUAL = {"allclose 0.001": "missed", "allclose 1e-05": "found"}


def row(fault: str, validate: str, names: str = "node", **others: Any) -> dict[str, Any]:
    about = {"model": "gpt2", "phase": "step", "seed": 0, "fault": fault, "validate": validate}
    return {**about, "names": names, **USUAL, **others}


def test_every_graph_once_with_faults_and_then_with_other_weights() -> None:
    tasks = zoo.tasks()
    assert len(set(tasks)) == len(tasks)
    first = [task for task in tasks if task.seed == 0]
    assert len(tasks) == zoo.SEEDS * len(first)
    assert tasks[: len(first)] == first
    models = {task.model for task in first}
    assert {"gpt2", "bert-base", "t5-small", "lstm", "rnn"} <= models
    assert not {"gpt2-xl", "bert-large", "t5-base"} & models, "at tiny they are the ones above"
    assert [task for task in tasks if task.planted] == first
    alone = zoo.tasks(planted=False)
    assert not any(task.planted for task in alone)
    assert [(task.model, task.phase, task.seed) for task in alone] == [(t.model, t.phase, t.seed) for t in tasks]


@pytest.mark.parametrize("jobs", [1, 2, 7])
def test_every_task_is_done_once_and_none_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jobs: int) -> None:
    monkeypatch.setattr(zoo, "ProcessPoolExecutor", lambda jobs, mp_context: ThreadPoolExecutor(jobs))
    monkeypatch.setattr(zoo, "_do", lambda task: [row("mask dropped" if task.planted else "", "found", **asdict(task))])
    all_of_them = zoo.tasks()
    some = [*all_of_them[:5], *all_of_them[-4:]]
    monkeypatch.setattr(zoo, "tasks", lambda *, planted: [replace(task, planted=planted) for task in some])
    for planted in (False, True):
        done = [task for task, _ in zoo.run(tmp_path, jobs, 60.0, planted=planted)]
        assert sorted(map(repr, done)) == sorted(repr(replace(task, planted=planted)) for task in some)
        assert list(zoo.run(tmp_path, jobs, 60.0, planted=planted)) == []


def test_no_time_left_means_that_nothing_new_is_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(zoo, "ProcessPoolExecutor", lambda jobs, mp_context: ThreadPoolExecutor(jobs))
    monkeypatch.setattr(zoo, "_do", lambda task: [row("", "pass", **asdict(task))])
    assert len(list(zoo.run(tmp_path, 2, 0.0))) == 2


def test_a_record_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    assert zoo.records(tmp_path) == []
    whole = json.dumps(row("mask dropped", "found"))
    (tmp_path / zoo.RECORDS).write_text(f"{whole}\n{whole[:20]}")
    assert zoo.records(tmp_path) == [row("mask dropped", "found")]


def test_the_table_counts_what_changes_the_function() -> None:
    rows = [
        row("", "pass"),
        row("", "fail", seed=1),
        row("mask dropped", "found"),
        row("mask dropped", "missed", "other", model="t5-small"),
        row("mask dropped", "equivalent", "none", model="bert-base"),
        row("bias dropped", "found", "none"),
    ]
    text = zoo.page(rows)
    assert "Of 4 mutants 3 change the function." in text
    assert "| `isorun validate` | 2 of 3 |" in text
    assert "| `numpy.allclose` at 0.001 | 0 of 3 |" in text
    assert "| mask dropped | 2 | 1 | 1 | 0 | 2 |" in text
    assert "in 1 of 3; in 0 more" in text
    assert "The others: mask dropped in t5-small step; bias dropped in gpt2 step." in text
    assert "1 of 2 graphs pass" in text


def test_the_command_without_faults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(zoo, "ProcessPoolExecutor", lambda jobs, mp_context: ThreadPoolExecutor(jobs))
    monkeypatch.setattr(zoo, "_do", lambda task: [row("", "fail" if task.seed else "pass", **asdict(task))])
    monkeypatch.setattr(zoo, "tasks", lambda *, planted: [zoo.Task("gpt2", "step", seed, planted) for seed in (0, 1)])
    found = CliRunner().invoke(app, ["mutate", "--all", "--unmutated", "--into", str(tmp_path)])
    assert found.exit_code == 1, "a graph that is right fails"
    assert found.stdout.splitlines()[-1] == "1 of 2 graphs without a fault pass"
    assert "1 of 2 graphs pass" in (tmp_path / "mutations.md").read_text()
    assert CliRunner().invoke(app, ["mutate", "--unmutated", str(tmp_path)]).exit_code == 2
