"""Where a run takes place: the cores and the memory that a container really grants."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isorun.bench import environment
from isorun.bench.environment import control_groups, cores, describe, memory_bytes


def _write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight cores, and the control groups under a folder of the test's own."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    mine = tmp_path / "mine"
    mine.write_text("")
    monkeypatch.setattr(environment, "control_groups", lambda: control_groups(tmp_path, mine))
    return tmp_path


def test_without_a_quota_the_affinity_counts(machine: Path) -> None:
    _write(machine, cpu__max="max 100000\n")
    assert cores() == 8


@pytest.mark.parametrize(("quota", "expected"), [("300000", 3), ("150000", 1), ("50000", 1), ("9900000", 8)])
def test_the_quota_of_a_container(machine: Path, quota: str, expected: int) -> None:
    _write(machine, cpu__max=f"{quota} 100000\n")
    assert cores() == expected


def test_the_smallest_quota_on_the_way_up(machine: Path) -> None:
    (machine / "mine").write_text("0::/slice/job\n")
    _write(machine / "slice", cpu__max="200000 100000\n")
    _write(machine / "slice" / "job", cpu__max="max 100000\n")
    assert cores() == 2


@pytest.mark.parametrize(("quota", "expected"), [("250000\n", 2), ("-1\n", 8)])
def test_the_first_version_of_control_groups(machine: Path, quota: str, expected: int) -> None:
    (machine / "mine").write_text("4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n")
    _write(machine / "cpu" / "docker" / "x", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000\n")
    assert cores() == expected


def test_one_core_is_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert cores() == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


def test_the_memory_limit_of_a_container(machine: Path) -> None:
    whole = memory_bytes()
    assert whole is not None
    _write(machine, memory__max=f"{1 << 28}\n")
    assert memory_bytes() == 1 << 28
    _write(machine, memory__max="max\n")
    assert memory_bytes() == whole


def test_a_system_without_proc_is_described(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_text = Path.read_text

    def without_proc(self: Path, *arguments: object, **options: object) -> str:
        if self.parts[:2] == ("/", "proc"):
            raise FileNotFoundError(self)
        return read_text(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "read_text", without_proc)
    monkeypatch.setattr(environment, "control_groups", lambda: control_groups(machine))
    facts = describe(2)
    assert facts["processor"]
    assert facts["cores"] == 8
    assert facts["memory_bytes"] > 1 << 28
