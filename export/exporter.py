"""export(): a source model becomes a folder with a checked graph and its manifest."""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx
import onnx_ir
import psutil
import torch
from torch.export import Dim

from ..models.phases import PhaseModule
from ..models.signature import Signature, TensorSpec
from .artifact import MODEL, ExportedModel, sha256
from .lowerings import LOWERINGS
from .source import Source

PEAK = 3.8  # peak memory of an export in units of the weights, as measured with torch 2.13
DEFAULT_OPSET = 23  # the newest at which the exporter keeps Attention and RMSNormalization whole


class ExportError(Exception):
    """A model that could not be exported; the message names the source and the reason in one line."""


def export(source: Source, phase: str, folder: Path, *, opset: int = DEFAULT_OPSET) -> ExportedModel:
    """Export one phase of a source model into a folder, which appears whole or not at all.

    Batch, sequence and past stay free; inputs and outputs bear the names of the module's signature.

    Raises:
        ExportError: the folder is in use, or the exporter or the checker refuses the model.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ExportError(f"{folder}: the folder is not empty, and an export never overwrites")
    _refuse_too_large(source)
    began = time.perf_counter()
    module = source.module(phase).eval()
    program = _trace(module, source, opset)
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        artifact = _write(program, module.signature, source, phase, opset, part, began)
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return ExportedModel.open(artifact.folder.with_name(folder.name))


def _refuse_too_large(source: Source) -> None:
    """Say so before the memory is taken: a process that runs out of it is killed without a word."""
    weights, free = source.weight_bytes(), psutil.virtual_memory().available
    if weights is not None and weights * PEAK > free:
        needed = f"{weights * PEAK / 2**30:.0f} GiB ({PEAK:g} times its weights in float32)"
        raise ExportError(
            f"{source.name} at {source.size}: needs about {needed} to export, {free / 2**30:.0f} are free"
        )


def _trace(module: PhaseModule, source: Source, opset: int) -> Any:
    """Run torch's exporter on an example and declare the signature's names and axes on the result."""
    signature = module.signature
    feeds = signature.feeds(module.example, padding="left")
    example = tuple(torch.from_numpy(array) for array in feeds.values())
    free = tuple(
        {i: Dim.DYNAMIC for i, dim in enumerate(spec.shape) if isinstance(dim, str)} for spec in signature.inputs
    )
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                module,
                example,
                dynamo=True,
                opset_version=opset,
                dynamic_shapes=(free,),
                input_names=[spec.name for spec in signature.inputs],
                output_names=[spec.name for spec in signature.outputs],
                custom_translation_table=LOWERINGS,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise ExportError(f"{source.name}: {_reason(error)}") from error
    assert program is not None  # dynamo=True always returns one
    _declare(program.model.graph.inputs, signature.inputs, source)
    _declare(program.model.graph.outputs, signature.outputs, source)
    return program


def _declare(values: Iterable[onnx_ir.Value | None], specs: Iterable[TensorSpec], source: Source) -> None:
    """Give each value the axes of its spec; a dimension that was fixed but should be free is an error."""
    for value, spec in zip(values, specs, strict=True):
        assert value is not None
        traced = value.shape
        for axis, dim in enumerate(spec.shape):
            found = traced[axis] if traced is not None and axis < len(traced) else None
            if isinstance(found, int) and found != dim:
                raise ExportError(
                    f"{source.name}: axis {axis} of {spec.name} should be {dim!r} and is fixed at {found}"
                )
        value.shape = onnx_ir.Shape(spec.shape)


def _write(
    program: Any, signature: Signature, source: Source, phase: str, opset: int, folder: Path, began: float
) -> ExportedModel:
    path = folder / MODEL
    program.save(path)
    try:
        onnx.checker.check_model(path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"{source.name}: the ONNX checker refuses the export: {_reason(error)}") from error
    graph = onnx.load(path, load_external_data=False).graph
    artifact = ExportedModel(
        folder=folder,
        phase=phase,
        dtype="fp32",
        opset=opset,
        source=source,
        ops=dict(sorted(Counter(node.op_type for node in graph.node).items())),
        files={file.name: sha256(file) for file in sorted(folder.iterdir())},
        limits={spec.name: spec.limit for spec in signature.inputs if spec.limit is not None},
        versions={name: version(name) for name in ("torch", "onnx", "onnxscript", "onnx-ir")},
        seconds=round(time.perf_counter() - began, 3),
    )
    artifact.write_manifest()
    return artifact


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's own progress and advice off the user's terminal; errors still arrive as exceptions."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _reason(error: BaseException) -> str:
    """The first line of the deepest cause: what torch wraps around it is advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
