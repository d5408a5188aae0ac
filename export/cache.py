"""Exports that are made once: the same source, options and versions give the folder that is there already.

Nothing here imports torch, so a hit costs what copying costs. An entry is found by a hash of all that decides its
bytes: the source with its files, the options, the code of this package, and the versions of the libraries. Entries
appear whole, their files are hashed again before they are used, and the oldest go when all of them take too much.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .artifact import MANIFEST, ArtifactError, ExportedModel, sha256
from .folder import whole
from .opsets import DEFAULT_OPSET
from .source import Source, refuse_unknown

LARGEST = 2**32  # bytes of all entries
SHARE = 4  # an entry takes at most a quarter of that
KINDS = ("preset", "checkpoint", "hf")  # what a user's own code returns is not known before it ran
LIBRARIES = ("torch", "onnx", "onnxscript", "onnx-ir", "numpy", "transformers", "safetensors", "onnxruntime")


def export(
    source: Source,
    phase: str,
    folder: Path,
    *,
    opset: int = DEFAULT_OPSET,
    force: bool = False,
    keep: bool = True,
    quantisation: Mapping[str, Any] | None = None,
    prove: Callable[[], Any] | None = None,
    **options: Any,
) -> tuple[ExportedModel, bool]:
    """`exporter.export`, and whether it was there already.

    `quantisation` are the fields of `precision.Quantisation`; `prove` makes what the exporter takes under this name.
    With `keep` off the cache is left alone.
    """
    key = {"opset": opset, "quantisation": quantisation, **options}
    entry = _entry(source, phase, key) if keep and source.kind in KINDS else None
    if entry is not None and _sound(entry):
        with whole(folder, force=force) as part:
            _copy(entry, part)
        with suppress(OSError):
            os.utime(entry / MANIFEST)  # used just now
        return ExportedModel.open(folder), True
    refuse_unknown(source)
    from .exporter import export as make
    from .precision import Quantisation

    options |= {"options": Quantisation(**(quantisation or {})), "prove": prove() if prove is not None else None}
    artifact = make(source, phase, folder, opset=opset, force=force, **options)
    if entry is not None:
        with suppress(OSError, ArtifactError):  # a cache that cannot be written is no reason to fail
            _store(artifact, entry)
    return artifact, False


def root() -> Path:
    """The folder of the cache: $ISORUN_CACHE, or ~/.cache/isorun."""
    given = os.environ.get("ISORUN_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "isorun"


def _entry(source: Source, phase: str, options: dict[str, Any]) -> Path:
    parts = {
        "source": asdict(source),
        "files": dict(_files(source)),
        "phase": phase,
        "options": options,
        "code": _code(),
        "versions": {"python": sys.version, **{name: _version(name) for name in LIBRARIES}},
    }
    return root() / hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _files(source: Source) -> Iterator[tuple[str, str]]:
    """The files of a checkpoint by what is in them."""
    if source.kind != "preset":
        folder = Path(source.name)
        for file in sorted((*folder.glob("*.json"), *folder.glob("*.safetensors"))):
            yield file.name, sha256(file)


def _code() -> str:
    """What this package's own models and exporter are."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for folder in ("models", "export"):
        for file in sorted((package / folder).rglob("*.py")):
            digest.update(f"{file.relative_to(package)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _sound(entry: Path) -> bool:
    """Whether an entry is there, with the bytes that were written."""
    try:
        artifact = ExportedModel.open(entry)
        return all(sha256(entry / name) == digest for name, digest in artifact.files.items())
    except (ArtifactError, OSError):
        return False


def _copy(source: Path, target: Path) -> None:
    for file in source.iterdir():
        shutil.copyfile(file, target / file.name)


def _store(artifact: ExportedModel, entry: Path) -> None:
    size = sum((artifact.folder / name).stat().st_size for name in artifact.files)
    if size > LARGEST // SHARE:
        return
    _make_room(size)
    shutil.rmtree(entry, ignore_errors=True)  # damaged, or it would have been taken
    with whole(entry) as part:
        _copy(artifact.folder, part)


def _make_room(size: int) -> None:
    """Remove the entries that were not used for longest, until there is room for one more."""
    entries = sorted(root().glob(f"*/{MANIFEST}"), key=lambda file: file.stat().st_mtime, reverse=True)
    for manifest in entries:
        size += sum(file.stat().st_size for file in manifest.parent.iterdir())
        if size > LARGEST:
            shutil.rmtree(manifest.parent)
