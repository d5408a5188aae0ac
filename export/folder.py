"""The folder of an export: it appears whole or not at all, and takes the place of nothing but another export."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from .artifact import MANIFEST, ArtifactError, ExportedModel


@contextmanager
def whole(folder: Path, *, force: bool = False) -> Iterator[Path]:
    """A folder to write into that takes its final name when all went well, and else leaves nothing behind.

    It lies beside the final one under a hidden name with the number of this process. What a killed process left is
    removed by the next export to the same place.

    Raises:
        ArtifactError: the final folder holds an export and `force` is not given, or it holds anything else.
    """
    folder = folder.absolute()
    _refuse_in_use(folder, force)
    _remove_leftovers(folder)
    part = _beside(folder, "part")
    part.mkdir(parents=True)
    try:
        yield part
        _refuse_in_use(folder, force)  # an export takes a while
        _take_place(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _take_place(part: Path, folder: Path) -> None:
    if not folder.exists():
        part.rename(folder)
        return
    old = _beside(folder, "old")
    folder.rename(old)
    part.rename(folder)
    shutil.rmtree(old)


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f".{folder.name}.isorun-{what}-{os.getpid()}")


def _remove_leftovers(folder: Path) -> None:
    for left in folder.parent.glob(f".{folder.name}.isorun-*-*"):
        number = left.name.rpartition("-")[2]
        if number.isdigit() and (int(number) == os.getpid() or not psutil.pid_exists(int(number))):
            shutil.rmtree(left)


def _refuse_in_use(folder: Path, force: bool) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ArtifactError(f"{folder}: is a file, and an export is a folder")
    names = {file.name for file in folder.iterdir()}
    if not names:
        return
    foreign = names - _own_files(folder)
    if foreign:
        raise ArtifactError(
            f"{folder}: the folder is not empty, and {min(foreign)} is not of an export: choose another"
        )
    if not force:
        raise ArtifactError(f"{folder}: the folder is not empty, it holds an export: --force replaces it")


def _own_files(folder: Path) -> set[str]:
    """The files of an exported folder that its manifest knows, or none where there is no readable one."""
    try:
        return {MANIFEST, *ExportedModel.open(folder).files}
    except ArtifactError:
        return set()
