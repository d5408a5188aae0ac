"""The certificate over the zoo: what is to be done, what is recorded, and what the table says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isorun.bench import zoo

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
