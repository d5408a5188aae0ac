"""Hostile files: whatever is in one, the checks answer with findings or a refusal, never with another exception."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from isorun.bench.validate import integrity, shapes, structure
from isorun.bench.validate.candidate import open_candidate
from isorun.bench.validate.checker import Checker
from isorun.bench.validate.finding import Refusal, report

from . import fuzz

COUNT = 300


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    """The real one, in its own process."""
    with Checker(timeout_s=20.0) as running:
        yield running


def outcome(path: Path, checker: Checker) -> str:
    try:
        opened = open_candidate(path)
        integrity.check(opened)
        shapes.grid(opened)
        found = report(str(path), structure.check(opened, checker))
    except Refusal as refusal:
        return "refused" if "does not survive" not in refusal.finding.says else "died"
    assert all(len(line) <= 100 and line.isprintable() for line in found.lines()[:-1])
    return found.verdict


def test_the_models_that_are_mutated_are_sound(tmp_path: Path, checker: Checker) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(fuzz.whole().SerializeToString())
    assert outcome(path, checker) == "pass"
    proto, content = fuzz.external()
    (tmp_path / "w.bin").write_bytes(content)
    path.write_bytes(proto.SerializeToString())
    assert outcome(path, checker) == "pass"


@pytest.mark.parametrize("seed", range(3))
def test_mutations_end_in_a_verdict_or_a_refusal(tmp_path: Path, checker: Checker, seed: int) -> None:
    (tmp_path / "w.bin").write_bytes(fuzz.external()[1])
    path = tmp_path / "model.onnx"
    seen: Counter[str] = Counter()
    for content in islice(fuzz.mutants(seed), COUNT):
        path.write_bytes(content)
        seen[outcome(path, checker)] += 1
    assert seen.keys() == {"pass", "fail", "refused"}  # each way out was taken
    assert min(seen.values()) > COUNT / 20
