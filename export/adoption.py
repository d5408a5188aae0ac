"""`isorun export FILE.onnx`: a file that is there already becomes an artifact, with its weights and a manifest."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from .artifact import MANIFEST, ArtifactError, ExportedModel, adopt, graph_signature, sha256
from .external import exists, external_path, external_range, is_external, tensors
from .folder import whole


def adopt_file(file: Path, folder: Path, *, force: bool = False) -> ExportedModel:
    """Copy an .onnx file and its external data into a folder, with a manifest of what its graph says.

    Raises:
        ArtifactError: it is no model, its weights lie outside its folder or are cut off, or the folder is in use.
    """
    began = time.perf_counter()
    try:
        proto = onnx.load(file, load_external_data=False)
    except (DecodeError, onnx.checker.ValidationError) as error:
        raise ArtifactError(f"{file}: not an ONNX model: {error}") from None
    names = sorted({file.name, *_external(file, proto)})
    if MANIFEST in names:
        raise ArtifactError(f"{file}: its weights lie in {MANIFEST}, where the manifest of an export goes")
    graph_signature(proto.graph)  # refuses what is no tensor
    with whole(folder, force=force) as part:
        for name in names:
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.parent / name, part / name)
        _check(part / file.name, str(file))
        replace(
            adopt(part / file.name, proto),
            folder=part,
            files={name: sha256(part / name) for name in names},
            versions={"onnx": version("onnx")},
            seconds=round(time.perf_counter() - began, 3),
            sizes={"file_bytes": sum((part / name).stat().st_size for name in names)},
            source=replace(adopt(file, proto).source, name=str(file.resolve())),
        ).write_manifest()
    return ExportedModel.open(folder)


def _check(copy: Path, name: str) -> None:
    try:
        onnx.checker.check_model(copy, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ArtifactError(f"{name}: the ONNX checker refuses it: {' '.join(str(error).split())[:200]}") from None


def _external(file: Path, proto: onnx.ModelProto) -> Iterator[str]:
    """The files that hold the weights, each inside the folder of the model and long enough."""
    for tensor in filter(is_external, tensors(proto)):
        path = external_path(tensor, file.parent)
        offset, length = external_range(tensor)
        location = str(path.relative_to(file.parent))
        if not exists(path):
            raise ArtifactError(f"{file}: weights of {tensor.name!r} should lie in {location!r}, which is not there")
        if (end := offset + (length or 0)) > path.stat().st_size:
            raise ArtifactError(
                f"{file}: weights of {tensor.name!r} end at byte {end} of {location!r}, which is shorter"
            )
        yield location
