"""A contest of real exports: results, reasons, and outputs that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from isorun.bench import truth
from isorun.bench.contest import Entry, Result, contest
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
    found = contest(entries, SIZES, truth=file, budget_s=0.1, rounds=3)
    first, second = found["a"], found["b"]
    assert isinstance(first, Result)
    assert isinstance(second, Result)
    assert len(first.blocks) == len(second.blocks) == 3
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
    found = contest({"a": Entry(folder)}, SIZES, truth=file, budget_s=0.1, rounds=3)
    assert "outputs wrong: logits" in str(found["a"])
