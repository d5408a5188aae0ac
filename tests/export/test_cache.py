"""Exports that are made once: what counts as the same, and what a damaged entry does."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from isorun.export import cache
from isorun.export.source import Source

SOURCE = Source("preset", "lstm", "tiny")
HIT = """
import sys
from pathlib import Path
from isorun.export import cache
from isorun.export.source import Source
artifact, there = cache.export(Source("preset", "lstm", "tiny"), "forward", Path(sys.argv[1]))
print(there, "torch" in sys.modules, artifact.sha256)
"""


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ISORUN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_second_export_is_a_copy_without_torch_and_the_third_is_made_anew(
    tmp_path: Path, empty_cache: Path
) -> None:
    first, there = cache.export(SOURCE, "forward", tmp_path / "first")
    assert not there
    done = subprocess.run(
        [sys.executable, "-c", HIT, str(tmp_path / "second")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False", first.sha256]
    (entry,) = empty_cache.iterdir()
    (entry / "model.onnx").write_bytes(b"damaged")
    third, there = cache.export(SOURCE, "forward", tmp_path / "third")
    assert not there
    assert third.sha256 == first.sha256  # byte for byte the same graph
    assert cache.export(SOURCE, "forward", tmp_path / "fourth")[1]  # the entry is mended


def test_whatever_decides_the_bytes_makes_another_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(source: Source = SOURCE, phase: str = "forward", **options: object) -> Path:
        return cache._entry(source, phase, {"opset": 23, **options})

    others = [entry(replace(SOURCE, seed=1)), entry(replace(SOURCE, size="small")), entry(phase="step")]
    others += [entry(opset=20), entry(dtype="fp16"), entry(replace(SOURCE, last_logits=True))]
    assert len({entry(), *others}) == len(others) + 1
    assert entry() == entry()
    before = entry()
    monkeypatch.setattr(cache, "_version", lambda name: "0")
    assert entry() != before


def test_a_checkpoint_is_known_by_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"one")
    source = Source("hf", str(tmp_path))
    before = cache._entry(source, "forward", {})
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert cache._entry(source, "forward", {}) != before


def test_the_oldest_entries_make_room(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for age, name in enumerate(("new", "old", "oldest")):
        (empty_cache / name).mkdir(parents=True)
        (empty_cache / name / "artifact.json").write_text("x" * 100)
        os.utime(empty_cache / name / "artifact.json", (1000 - age, 1000 - age))
    monkeypatch.setattr(cache, "LARGEST", 250)
    cache._make_room(100)
    assert [entry.name for entry in empty_cache.iterdir()] == ["new"]


def test_a_users_own_code_is_never_cached(tmp_path: Path, empty_cache: Path) -> None:
    source = Source("module", "isorun.models.yardstick:matmul")
    assert not cache.export(source, "forward", tmp_path / "out")[1]
    assert not empty_cache.exists()
