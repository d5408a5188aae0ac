"""The model under validation: found, read without its weights, and described. Nothing of it is executed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...export.artifact import MANIFEST, ArtifactError, ExportedModel, adopt
from ...models.signature import Signature
from .finding import refuse

if TYPE_CHECKING:
    import onnx

CHECK = "integrity"
MESSAGE_BYTES = 2**31  # protobuf's own limit


@dataclass(frozen=True)
class Candidate:
    """An ONNX model: its file, its graph with external weights left on disk, and its artifact."""

    path: Path
    proto: onnx.ModelProto
    artifact: ExportedModel

    @cached_property
    def signature(self) -> Signature:
        """Declared inputs and outputs, with id limits from the manifest or from the table that the ids look up."""
        return self.artifact.signature()

    @cached_property
    def opset(self) -> int:
        """The version of the standard operators."""
        return max((entry.version for entry in self.proto.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def open_candidate(path: Path) -> Candidate:
    """Read a model file or an artifact's folder.

    Raises:
        Refusal: it is not there, or no ONNX model.
    """
    file = _locate(path)
    proto = _parse(file)
    try:
        artifact = ExportedModel.open(path) if path.is_dir() else adopt(file, proto)
    except ArtifactError as error:
        raise refuse(CHECK, str(error)) from None
    return Candidate(file, proto, artifact)


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node of a graph, those of its subgraphs included."""
    for inner in graphs(graph):
        yield from inner.node


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and all its subgraphs; an explicit stack, since a hostile file may nest deeply."""
    stack = [graph]
    while stack:
        current = stack.pop()
        yield current
        for node in current.node:
            for attribute in node.attribute:
                stack.extend(attribute.graphs)
                if attribute.HasField("g"):
                    stack.append(attribute.g)


def _locate(path: Path) -> Path:
    if path.is_dir():
        if not (path / MANIFEST).is_file():
            raise refuse(CHECK, f"{path}: a folder without {MANIFEST}", "give the path of the .onnx file itself")
        try:
            return ExportedModel.open(path).model_path
        except ArtifactError as error:
            raise refuse(CHECK, str(error)) from None
    if not path.is_file():
        raise refuse(CHECK, f"{path}: no such file")
    return path


def _parse(file: Path) -> onnx.ModelProto:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    size = file.stat().st_size
    if size == 0:
        raise refuse(CHECK, f"{file}: the file is empty", "download or export it again")
    if size >= MESSAGE_BYTES:
        raise refuse(CHECK, f"{file}: {size} bytes, and a protobuf message ends at 2 GiB", "save with external data")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(file.read_bytes())
    except DecodeError:
        raise refuse(CHECK, f"{file}: not an ONNX model, or cut off", "download or export it again") from None
    if not model.HasField("graph") or not model.graph.output or not model.opset_import:
        raise refuse(CHECK, f"{file}: parsed, but it has no graph with outputs and an opset: not an ONNX model")
    return model
