"""The model under validation: found, read without its weights, and described. Nothing of it is executed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...export.artifact import MANIFEST, ArtifactError, ExportedModel, adopt, graph_signature, opset
from ...export.external import messages, tensors
from ...models.signature import Signature
from .finding import refuse

if TYPE_CHECKING:
    import onnx
    from google.protobuf.message import Message  # type: ignore[import-untyped]

CHECK = "integrity"
MESSAGE_BYTES = 2**31  # protobuf's own limit
QUANTISED = ("Integer", "QLinear", "QuantizeLinear", "MatMulNBits", "MatMulBnb4")  # parts of names of operators
BLOCKS = ("MatMulNBits", "MatMulBnb4")
ALIASING = ("Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape")  # what ids pass on their way to a table


@dataclass(frozen=True)
class Candidate:
    """An ONNX model: its file, its graph with external weights left on disk, and its artifact."""

    path: Path
    proto: onnx.ModelProto
    artifact: ExportedModel

    @cached_property
    def signature(self) -> Signature:
        """Declared inputs and outputs, with id limits from the manifest or from the table that the ids look up."""
        declared = graph_signature(self.proto.graph)
        limits = self.artifact.limits
        inputs = (replace(s, limit=limits.get(s.name) or table_rows(self.proto.graph, s.name)) for s in declared.inputs)
        return Signature(tuple(inputs), declared.outputs)

    @cached_property
    def opset(self) -> int:
        """The version of the standard operators."""
        return opset(self.proto)

    @cached_property
    def nodes(self) -> tuple[onnx.NodeProto, ...]:
        """Every node, those of subgraphs and local functions included."""
        import onnx

        return tuple(message for message in messages(self.proto) if isinstance(message, onnx.NodeProto))

    @cached_property
    def quantised(self) -> bool:
        """Whether the graph has integer arithmetic: its error is that of its quantisation, not of rounding."""
        return any(part in node.op_type for node in self.nodes for part in QUANTISED)

    @cached_property
    def bits(self) -> Literal[4, 8] | None:
        """The bits of a quantised graph's weights, the fewest of any."""
        if not self.quantised:
            return None
        import onnx

        four = {onnx.TensorProto.INT4, onnx.TensorProto.UINT4}
        blocks = (node for node in self.nodes if node.op_type in BLOCKS)
        given = [next((a.i for a in node.attribute if a.name == "bits"), 4) for node in blocks]
        return 4 if min(given, default=8) < 8 or any(t.data_type in four for t in self.tensors) else 8

    @cached_property
    def tensors(self) -> tuple[onnx.TensorProto, ...]:
        """Every tensor that the file stores, wherever it is."""
        return tuple(tensors(self.proto))


def open_candidate(path: Path) -> Candidate:
    """Read a model file or an artifact's folder.

    Raises:
        Refusal: it is not there, no ONNX model, or one whose inputs and outputs are not tensors.
    """
    file = _locate(path)
    proto = _parse(file)
    try:
        artifact = ExportedModel.open(path) if path.is_dir() else adopt(file, proto)
        candidate = Candidate(file, proto, artifact)
        _ = candidate.signature
    except ArtifactError as error:
        raise refuse(CHECK, f"{file}: {error}") from None
    return candidate


def table_rows(graph: onnx.GraphProto, name: str) -> int | None:
    """The rows of the smallest table that an input looks up directly, or None."""
    tables = {tensor.name: tensor.dims[0] for tensor in graph.initializer if len(tensor.dims) == 2}
    aliases, rows = {name}, []
    for node in graph.node:
        if node.op_type in ALIASING and aliases.intersection(node.input[:1]):
            aliases.update(node.output[:1])
        if node.op_type == "Gather" and len(node.input) > 1 and node.input[1] in aliases and node.input[0] in tables:
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            rows += [tables[node.input[0]]] if axis == 0 else []
    return min(rows, default=None)


def _locate(path: Path) -> Path:
    if path.is_dir():
        if not (path / MANIFEST).is_file():
            raise refuse(CHECK, f"{path}: a folder without {MANIFEST}", "give the path of the .onnx file itself")
        try:
            path = ExportedModel.open(path).model_path
        except ArtifactError as error:
            raise refuse(CHECK, str(error)) from None
    if not path.is_file():
        raise refuse(CHECK, f"{path}: no such file")
    return path


def _parse(file: Path) -> onnx.ModelProto:
    import onnx
    from google.protobuf.message import DecodeError

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
    if not all(map(_readable, messages(model))):
        raise refuse(CHECK, f"{file}: holds names that are not UTF-8", "download or export it again")
    return model


def _readable(message: Message) -> bool:
    """Whether every text of one message is text: protobuf hands out bytes where it is not."""
    texts = [value for field, value in message.ListFields() if field.type == field.TYPE_STRING]
    single = [value for value in texts if isinstance(value, str | bytes)]
    listed = [value for values in texts if not isinstance(values, str | bytes) for value in values]
    return not any(isinstance(value, bytes) for value in (*single, *listed))
