"""The end of an export: a float32 graph is put into its precision, written, checked, and held to its source."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ..models.phases import PhaseModule
from ..models.signature import Array, Signature
from . import passes
from .artifact import MODEL, ArtifactError, ExportedModel, graph_signature, sha256
from .folder import whole
from .outputs import outputs64
from .precision import DEFAULT, Quantisation, convert, quantisable, refuse_drift, session
from .precision.choice import Choice, choose
from .precision.error import measure
from .precision.evaluate import evaluate
from .storage import save
from .trace import ExportError, refusal

EXAMPLE = 3  # the size of the first free axis of a graph without a source; the others are larger
VERSIONS = ("torch", "onnx", "onnxscript", "onnx-ir")


@dataclass(frozen=True)
class Original:
    """What a graph is held to: example inputs of the float32 graph, and what they should become.

    `feeds` is None where nothing can be run, and `why` says the reason. `bytes` are those of the weights in float32.
    """

    bytes: int
    feeds: Mapping[str, Array] | None = None
    truth: Callable[[Mapping[str, Array]], dict[str, Array]] | None = None
    why: str = ""


def of_module(module: PhaseModule) -> Original:
    """A source model, which the truth turns into float64; one without weights (`streaming.py`) cannot be run."""
    if any(parameter.is_meta for parameter in module.parameters()):
        return Original(source_bytes(module), why="the weights were streamed, and never all there")
    feeds = module.signature.feeds(module.example, padding="left")
    return Original(source_bytes(module), feeds, partial(outputs64, module))


def of_file(artifact: ExportedModel) -> Original:
    """A float32 graph without a source: the truth is what it computes itself, which has an error of 1e-7 of its own."""
    signature = artifact.signature()
    sizes = {axis: EXAMPLE + i for i, axis in enumerate(sorted(signature.axes))}
    stored = sum(file.stat().st_size for file in artifact.folder.iterdir() if file.name in artifact.files)
    return Original(stored, signature.feeds(sizes), partial(_single, artifact.model_path))


def _single(file: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """What a float32 graph makes of inputs that may be of half precision."""
    wide = {name: array.astype(np.float32) if array.dtype.kind == "f" else array for name, array in feeds.items()}
    return evaluate(file, wide)


def source_bytes(module: PhaseModule) -> int:
    """The bytes of a source's weights and buffers in float32, shared ones counted once."""
    tensors = (*module.parameters(), *module.buffers())
    return sum(tensor.numel() * (4 if tensor.is_floating_point() else tensor.element_size()) for tensor in tensors)


def finish(
    model: ir.Model,
    original: Original,
    folder: Path,
    *,
    dtype: str,
    options: Quantisation = DEFAULT,
    external: bool = False,
) -> dict[str, Any]:
    """Convert a float32 graph and write it into a folder; the fields of the manifest that this settles.

    Where the original cannot be run, nothing is, neither to see how large values become nor to measure errors, and the
    weights go into a file of their own, where they are written as they are made.

    Raises:
        ValueError: an unknown dtype or option, a weight that float16 cannot hold, or a drift that cannot be reached.
        onnx.checker.ValidationError, onnx.shape_inference.InferenceError: the checker refuses the graph.
    """
    choice = _choice(model, original, folder, dtype, options)
    notes = convert(model, dtype, original.feeds, options, choice.kept if choice else None)
    save(model, folder / MODEL, external=external or original.feeds is None)
    onnx.checker.check_model(folder / MODEL, full_check=True)
    graph = onnx.load(folder / MODEL, load_external_data=False).graph
    errors, remarks = _errors(folder / MODEL, original, graph)
    after = max(errors.values(), default=np.nan)
    return {
        **(choice.fields(after) if choice else {}),
        "dtype": dtype,
        "ops": dict(sorted(Counter(node.op_type for node in graph.node).items())),
        "files": {file.name: sha256(file) for file in sorted(folder.iterdir())},
        "versions": {name: version(name) for name in VERSIONS},
        "notes": (*notes, *remarks, *([choice.note(dtype, after)] if choice else [])),
        "errors": errors,
        "sizes": {
            "source_bytes": original.bytes,
            "file_bytes": sum(file.stat().st_size for file in folder.iterdir()),
        },
    }


def _choice(model: ir.Model, original: Original, folder: Path, dtype: str, options: Quantisation) -> Choice | None:
    """The matrices that keep a higher precision; None where no drift is asked for. Trials come and go in the folder.

    Raises:
        ValueError: the drift cannot be measured or reached.
    """
    limit = options.max_drift
    refuse_drift(dtype, limit)
    if limit is None:
        return None
    if original.feeds is None or original.truth is None:
        raise ValueError(f"max drift {limit:g}: cannot be measured: {original.why}")
    feeds = original.feeds
    of_copy = deepcopy(original.truth)  # it turns its module into float64, and the graph has its weights from there
    truth = cache(lambda: of_copy(feeds))  # once for all trials

    def drift(kept: Mapping[str, str]) -> float:
        trial = model.clone()
        convert(trial, dtype, None, options, kept)
        with TemporaryDirectory(dir=folder) as place:
            file = Path(place) / MODEL
            save(trial, file)
            errors, why = measure(file, lambda _: truth(), feeds, original.bytes)
        if not errors:
            raise ValueError(f"max drift {limit:g}: {why[0]}")
        return max(errors.values())

    return choose(quantisable(model), dtype, limit, drift)


def _errors(file: Path, original: Original, graph: onnx.GraphProto) -> tuple[dict[str, float], list[str]]:
    """The measured errors, or a note that says why there are none."""
    if original.feeds is None or original.truth is None:
        return {}, [f"error not measured: {original.why}"]
    return measure(file, original.truth, _typed(original.feeds, graph), original.bytes)


def derive(
    artifact: ExportedModel,
    dtype: str,
    folder: Path,
    *,
    target: str = "portable",
    prove: Callable[[Signature], passes.Prove] | None = None,
    options: Quantisation = DEFAULT,
    external: bool = False,
    force: bool = False,
) -> ExportedModel:
    """The same graph in another precision or for another target, made from the float32 one without tracing it again.

    Raises:
        ArtifactError: the artifact is not float32, or the folder is in use.
        ExportError: it cannot be had in this precision.
    """
    if artifact.dtype != "fp32":
        name = artifact.source.name if artifact.source.kind == "file" else artifact.folder
        raise ArtifactError(f"{name}: is {artifact.dtype}; other precisions and targets are made from fp32")
    began = time.perf_counter()
    original = of_file(artifact) if artifact.source.kind == "file" else of_module(artifact.module())
    with whole(folder, force=force) as part:
        model = ir.load(artifact.model_path)
        notes = passes.apply(model, target, None if prove is None else prove(artifact.signature()))
        try:
            fields = finish(model, original, part, dtype=dtype, options=options, external=external)
        except ValueError as error:
            raise ExportError(f"{artifact.source.name}: {error}") from error
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            reason = f"the ONNX checker refuses it in {dtype}: {refusal(error)}"
            raise ExportError(f"{artifact.source.name}: {reason}") from error
        fields["notes"] = (*artifact.notes, *notes, *fields["notes"])
        fields["session"] = {**artifact.session, **passes.session(target), **session(dtype)}
        if target != "portable":
            fields |= {"target": target, "opset": model.opset_imports[""], "aliases": passes.aliases(model)}
        seconds = round(time.perf_counter() - began, 3)
        replace(artifact, folder=part, seconds=seconds, model=MODEL, **fields).write_manifest()
    return ExportedModel.open(folder)


def _typed(feeds: Mapping[str, Array], graph: onnx.GraphProto) -> dict[str, Array]:
    """Feeds in the types that the graph declares: caches of a float16 graph are float16."""
    return {spec.name: feeds[spec.name].astype(np.dtype(spec.dtype)) for spec in graph_signature(graph).inputs}
