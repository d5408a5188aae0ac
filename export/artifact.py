"""ExportedModel: a folder with `model.onnx` and its manifest `artifact.json`. No torch is imported to read one."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..models.signature import PAST, Signature, TensorSpec
from .source import Source

if TYPE_CHECKING:
    import onnx

    from ..models.phases import PhaseModule

SCHEMA = 1
MANIFEST = "artifact.json"
MODEL = "model.onnx"
FLOAT16 = 10  # onnx.TensorProto.FLOAT16
DTYPES = ("fp32", "fp16", "bf16", "int8", "int8-weights", "int4")
QUANTISED = ("int8", "int8-weights", "int4")  # graphs that are other functions than their sources, by intention


class ArtifactError(Exception):
    """A folder that is no artifact, or a damaged one; the message names the file, the rule and the value."""


@dataclass(frozen=True)
class ExportedModel:
    """An exported model on disk.

    `phase` is "forward", "step" or "encode"; `ops` counts operators by name; `files` maps each file of the folder to
    its SHA-256; `limits` maps id inputs to their exclusive upper bound; `seconds` is what the export took; `notes` are
    what the graph passes say of their work; `errors` are those measured at export, relative, of each output against
    the source in float64 (rms over rms); `sizes` holds `source_bytes` (the weights) and `file_bytes`. `session` are
    options of a runtime's session, with which the target is faster or the precision exact. `aliases` maps an output to
    the input whose buffer it may share: a present that is written behind its past. Where a limit of drift chose what is
    quantised, `drift` holds it with the drift before and after, and `kept` names each matrix that has another precision
    than the rest: the `layer` that reads it, its `dtype`, and the drift that quantising it costs `alone`.
    """

    folder: Path
    phase: str
    dtype: str
    opset: int
    source: Source
    ops: Mapping[str, int]
    files: Mapping[str, str]
    limits: Mapping[str, int]
    versions: Mapping[str, str]
    seconds: float
    model: str = MODEL
    target: str = "portable"
    notes: tuple[str, ...] = ()
    errors: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    session: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    drift: Mapping[str, float] = field(default_factory=dict)
    kept: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def model_path(self) -> Path:
        """The graph."""
        return self.folder / self.model

    @property
    def sha256(self) -> str:
        """Hash of the graph file."""
        return self.files[self.model]

    def signature(self) -> Signature:
        """Inputs and outputs as the graph declares them, with the id limits of the manifest."""
        import onnx

        declared = graph_signature(onnx.load(self.model_path, load_external_data=False).graph)
        inputs = (replace(spec, limit=self.limits.get(spec.name)) for spec in declared.inputs)
        return Signature(tuple(inputs), declared.outputs)

    def module(self) -> PhaseModule:
        """The source model, rebuilt; needs torch."""
        return self.source.module(self.phase)

    def write_manifest(self) -> None:
        """Write `artifact.json` into the folder."""
        content = {"schema": SCHEMA, **asdict(self)}
        del content["folder"]
        (self.folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n")

    @classmethod
    def open(cls, folder: Path) -> ExportedModel:
        """Read the manifest of a folder.

        Raises:
            ArtifactError: no manifest, a damaged or a newer one.
        """
        path = folder / MANIFEST
        if not path.is_file():
            raise ArtifactError(f"{folder}: no {MANIFEST}, so this is not an exported model")
        try:
            content: dict[str, Any] = json.loads(path.read_text())
            schema = content.pop("schema")
            if schema > SCHEMA:
                raise ArtifactError(f"{path}: schema {schema} is newer than the {SCHEMA} that this isorun reads")
            content["notes"] = tuple(content.get("notes", ()))
            return _sane(cls(folder=folder, **{**content, "source": Source(**content["source"])}))
        except (RecursionError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ArtifactError(f"{path}: not a manifest: {error}") from None


def _sane(artifact: ExportedModel) -> ExportedModel:
    """The artifact itself, when the fields of its manifest have their types, and its graph lies beside it.

    Raises:
        ValueError: which do not.
    """
    texts = dict.fromkeys(("phase", "dtype", "model", "target"), str)
    tables = dict.fromkeys(("ops", "files", "limits", "errors", "sizes", "session", "aliases", "drift", "kept"), dict)
    types = {**texts, "opset": int, **tables}
    for name, wanted in types.items():
        if not isinstance(getattr(artifact, name), wanted):
            raise ValueError(f"{name} is {getattr(artifact, name)!r}, which is no {wanted.__name__}")
    source = artifact.source
    if not all(isinstance(text, str) for text in (source.kind, source.name, source.size)):
        raise ValueError("kind, name and size of the source are not all text")
    if artifact.dtype not in DTYPES:
        raise ValueError(f"dtype {artifact.dtype!r} is none of {', '.join(DTYPES)}")
    if not all(isinstance(limit, int) and limit > 0 for limit in artifact.limits.values()):
        raise ValueError(f"limits {dict(artifact.limits)} are not all positive")
    if artifact.model in ("", ".", "..") or {"/", "\\", "\0"} & set(artifact.model):
        raise ValueError(f"model {artifact.model!r} is not the name of a file in the folder")
    return artifact


def adopt(file: Path, proto: onnx.ModelProto) -> ExportedModel:
    """Any ONNX file as an artifact: what its graph says of itself, and no source."""
    past = any(value.name.startswith(PAST) for value in proto.graph.input)
    types = {value.type.tensor_type.elem_type for value in (*proto.graph.input, *proto.graph.output)}
    stored = {tensor.data_type for tensor in proto.graph.initializer}
    return replace(
        bare(file, "fp16" if FLOAT16 in types | stored else "fp32"),
        phase="step" if past else "forward",
        opset=opset(proto),
        ops=dict(sorted(Counter(node.op_type for node in proto.graph.node).items())),
    )


def bare(file: Path, dtype: str) -> ExportedModel:
    """A model file as an artifact, unread: where it lies and the precision of its arithmetic."""
    return ExportedModel(
        folder=file.parent,
        phase="forward",
        dtype=dtype,
        opset=0,
        source=Source("file", str(file)),
        ops={},
        files={},
        limits={},
        versions={},
        seconds=0.0,
        model=file.name,
    )


def opset(proto: onnx.ModelProto) -> int:
    """The version of the standard operators; 0 without any."""
    return max((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def graph_signature(graph: onnx.GraphProto) -> Signature:
    """The declared inputs and outputs of a graph; a dimension without name or size is called "?".

    Raises:
        ArtifactError: one of them is no tensor, or of an unknown type.
    """
    weights = {tensor.name for tensor in graph.initializer}
    inputs = tuple(_spec(value) for value in graph.input if value.name not in weights)
    return Signature(inputs, tuple(_spec(value) for value in graph.output))


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    from onnx import helper

    tensor = value.type.tensor_type
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise ArtifactError(f"{value.name!r} is declared as {kind or 'nothing'}; only tensors can be fed and compared")
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    except (KeyError, ValueError):
        raise ArtifactError(f"{value.name!r} is a tensor of the unknown type {tensor.elem_type}") from None
    # A negative size is how old exporters write a free axis.
    dims = (
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or "?" for d in tensor.shape.dim
    )
    return TensorSpec(value.name, dtype, tuple(dims))


def sha256(path: Path) -> str:
    """Hash of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
