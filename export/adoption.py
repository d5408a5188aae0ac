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
from onnx import TensorProto

from ..models.phases import PAST
from .artifact import MANIFEST, ArtifactError, ExportedModel, adopt, graph_signature, sha256
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
    signature = graph_signature(proto.graph)
    phase = "step" if any(spec.name.startswith(PAST) for spec in signature.inputs) else "forward"
    with whole(folder, force=force) as part:
        for name in names:
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.parent / name, part / name)
        onnx.checker.check_model(part / file.name, full_check=True)
        replace(
            adopt(part / file.name, proto),
            folder=part,
            phase=phase,
            files={name: sha256(part / name) for name in names},
            versions={"onnx": version("onnx")},
            seconds=round(time.perf_counter() - began, 3),
            sizes={"file_bytes": sum((part / name).stat().st_size for name in names)},
            source=replace(adopt(file, proto).source, name=str(file.resolve())),
        ).write_manifest()
    return ExportedModel.open(folder)


def _external(file: Path, proto: onnx.ModelProto) -> Iterator[str]:
    """The files that hold the weights, each inside the folder of the model and long enough."""
    inside = file.parent.resolve()
    for tensor in _tensors(proto.graph):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        path = (inside / location).resolve()
        if not location or not path.is_relative_to(inside) or path == inside:
            raise ArtifactError(f"{file}: weights of {tensor.name!r} lie in {location!r}, outside the model's folder")
        if not path.is_file():
            raise ArtifactError(f"{file}: weights of {tensor.name!r} should lie in {location!r}, which is not there")
        end = int(entries.get("offset") or 0) + int(entries.get("length") or 0)
        if end > path.stat().st_size:
            raise ArtifactError(
                f"{file}: weights of {tensor.name!r} end at byte {end} of {location!r}, which is shorter"
            )
        yield location


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for part in (attribute.g, *attribute.graphs):
                yield from _tensors(part)
