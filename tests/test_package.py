"""The package: what the wheel holds is what the tree holds, and names are unique."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import isorun
from isorun.runtimes import all_runtimes

ROOT = Path(__file__).parents[1]
FOLDERS = ("commands", "models", "export", "runtimes", "bench", "reports")


def test_the_wheel_holds_every_file_of_the_tree(tmp_path: Path) -> None:
    source = tmp_path / "source"  # a build leaves folders behind, so it works on a copy
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    for name in filter(None, files):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = [
        sys.executable,
        "-c",
        f"from setuptools.build_meta import build_wheel; print(build_wheel({str(tmp_path)!r}))",
    ]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        packed = {name.removeprefix("isorun/") for name in wheel.namelist() if name.startswith("isorun/")}
    tracked = {name for name in files if name.split("/")[0] in FOLDERS or (name.endswith(".py") and "/" not in name)}
    assert packed == {*(name for name in tracked if (ROOT / name).is_file()), "py.typed"}


def test_public_names_are_there() -> None:
    for name in isorun.__all__:
        assert getattr(isorun, name) is not None


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = isorun.nothing


def test_the_version_is_the_metadata_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {isorun.__version__}" in changes
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"] == ["version"]


def test_runtime_names_are_unique_and_their_keys() -> None:
    runtimes = all_runtimes()
    assert {"torch", "ort-cpu", "ort-cuda", "reference"} <= set(runtimes)
    assert all(runtime.name == name for name, runtime in runtimes.items())
