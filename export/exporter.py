"""export(): a source model becomes a folder with a checked graph and its manifest."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx_ir

from ..models.phases import PhaseModule
from ..models.signature import Signature
from .artifact import DTYPES, ExportedModel
from .finish import finish, of_module, source_bytes
from .folder import whole
from .last import only_last
from .machine import free_bytes
from .opsets import DEFAULT_OPSET, OPSETS
from .passes import TARGETS, Prove, aliases, apply, session
from .precision import DEFAULT, Quantisation
from .precision import session as exact
from .source import Source, refuse_unknown
from .specialised import check
from .storage import DoubledWeights, refuse_doubled
from .streaming import STREAMED, needed_bytes, trace_without_weights, without_weights
from .trace import ExportError, Guard, refusal, trace, traced

__all__ = ["DEFAULT_OPSET", "ExportError", "export", "trace"]

PEAK = 3.8  # peak memory of an export in units of the weights, as measured with torch 2.13


def export(
    source: Source,
    phase: str,
    folder: Path,
    *,
    opset: int = DEFAULT_OPSET,
    dtype: str = "fp32",
    target: str = "portable",
    last_logits: bool = False,
    force: bool = False,
    allow_specialised: bool = False,
    external: bool = False,
    stream: bool | None = None,
    options: Quantisation = DEFAULT,
    prove: Callable[[Signature], Prove] | None = None,
) -> ExportedModel:
    """Export one phase of a source model into a folder, which appears whole or not at all.

    Batch, sequence and past stay free; inputs and outputs bear the names of the module's signature. A graph that holds
    for the traced sizes alone is refused, unless `allow_specialised`. `force` replaces another export in the folder.
    `last_logits` leaves the head the last token alone. `external` puts the weights into a file of their own, which many
    of them are anyway. `stream` makes weights one at a time, when they are written; by default it does so where they
    would not fit into memory. `prove` is what the passes of the target are held to (`bench.proof`); those of streamed
    weights are not.

    Raises:
        ArtifactError: the folder is in use.
        ExportError: the exporter or the checker refuses the model, or the graph is another function at other sizes.
        SourceError: the source names nothing that is there.
    """
    _refuse_options(opset, dtype, target)
    refuse_unknown(source)
    source = replace(source, last_logits=source.last_logits or last_logits)
    began = time.perf_counter()
    with whole(folder, force=force) as part:
        stream = _too_large(source) if stream is None else stream
        model, module, guards = _traced(source, phase, opset, stream=stream)
        notes = [] if stream else check(model, module, guards, source.name, allowed=allow_specialised)
        notes += apply(model, target, None if prove is None or stream else prove(module.signature))
        settings = {"dtype": dtype, "external": external, "options": options}
        opset = model.opset_imports[""]  # a pass may have raised it
        fields = {"phase": phase, "opset": opset, "source": source, "target": target, "notes": notes}
        fields |= {"session": session(target) | exact(dtype), "aliases": aliases(model)}
        _write(model, module, part, began, settings, fields)
    return ExportedModel.open(folder)


def _refuse_options(opset: int, dtype: str, target: str) -> None:
    if opset not in OPSETS:
        raise ExportError(f"opset {opset} is none of {min(OPSETS)} to {max(OPSETS)}")
    if dtype not in DTYPES:
        raise ExportError(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
    if target not in TARGETS:
        raise ExportError(f"target {target!r} is none of {', '.join(TARGETS)}")


def _too_large(source: Source) -> bool:
    """Whether an ordinary export would take more memory than there is."""
    weights = source.weight_bytes()
    return weights is not None and weights * PEAK > free_bytes()


def _traced(
    source: Source, phase: str, opset: int, *, stream: bool
) -> tuple[onnx_ir.Model, PhaseModule, tuple[Guard, ...]]:
    """The graph, its module, which has no weights where they are streamed, and the guards of the trace.

    Raises:
        ExportError: there is not enough memory. A process that runs out of it is killed without a word.
    """
    if not stream:
        module = source.module(phase).eval()
        program, guards = traced(module, source, opset)
        return program.model, module, guards
    if source.kind not in STREAMED:
        needed, free = PEAK * (source.weight_bytes() or 0), free_bytes()
        raise ExportError(
            f"{source.name}: needs about {needed / 2**30:.0f} GiB to export ({PEAK:g} times its weights in float32), "
            f"{free / 2**30:.0f} are free; weights can be streamed from {' or '.join(STREAMED)} sources alone"
        )
    module, draw = without_weights(source, phase)
    needed, free = needed_bytes(module), free_bytes()
    if needed > free:
        raise ExportError(
            f"{source.name} at {source.size}: needs {needed / 2**30:.0f} GiB to export even with streamed weights, "
            f"{free / 2**30:.0f} are free"
        )
    if source.last_logits:
        only_last(module, source.name)
    model, guards = trace_without_weights(source, module, draw, opset)
    return model, module, guards


def _write(
    model: onnx_ir.Model,
    module: PhaseModule,
    folder: Path,
    began: float,
    settings: dict[str, Any],
    fields: dict[str, Any],
) -> None:
    """Convert, write and check the graph, and the manifest beside it."""
    name = fields["source"].name
    try:
        refuse_doubled(model, source_bytes(module))
        finished = finish(model, of_module(module), folder, **settings)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"{name}: the ONNX checker refuses the export: {refusal(error)}") from error
    except (DoubledWeights, ValueError) as error:
        raise ExportError(f"{name}: {error}") from error
    fields = {**fields, **finished, "notes": (*fields["notes"], *finished["notes"])}
    limits = {spec.name: spec.limit for spec in module.signature.inputs if spec.limit is not None}
    seconds = round(time.perf_counter() - began, 3)
    ExportedModel(folder=folder, limits=limits, seconds=seconds, **fields).write_manifest()
