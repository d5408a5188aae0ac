"""Exporters side by side: what torch's two make of one module, each as a row, failures too."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir
import torch

from ..models.phases import PhaseModule
from .opsets import DEFAULT_OPSET
from .source import Source
from .specialised import check
from .storage import stored_bytes
from .trace import ExportError, quiet, refusal, trace

TORCHSCRIPT_OPSET = 20  # its newest


def compare(source: Source, phase: str, *, opset: int = DEFAULT_OPSET) -> list[dict[str, Any]]:
    """A row for each exporter: seconds, nodes, operators, bytes of weights, and whether it holds at other sizes."""
    makers: dict[str, tuple[int, Callable[[PhaseModule, int], onnx_ir.Model]]] = {
        "dynamo": (opset, lambda module, number: trace(module, source, number).model),
        "torchscript": (min(opset, TORCHSCRIPT_OPSET), _torchscript),
    }
    return [
        {"exporter": name, "opset": number, **_row(source.module(phase).eval(), make, number)}
        for name, (number, make) in makers.items()
    ]


def _row(module: PhaseModule, make: Callable[[PhaseModule, int], onnx_ir.Model], opset: int) -> dict[str, Any]:
    began = time.perf_counter()
    empty = {"seconds": "", "nodes": "", "operators": "", "weight_bytes": ""}
    try:
        model = make(module, opset)
    except ExportError as error:
        return {**empty, "result": str(error)}
    except Exception as error:  # what TorchScript raises has no class in common
        return {**empty, "result": refusal(error)}
    seconds = round(time.perf_counter() - began, 1)
    nodes = [node.op_type for node in model.graph.all_nodes()]
    try:
        result = "; ".join(check(model, module, (), "")) or "the same at other sizes"
    except ExportError as error:
        result = str(error).removeprefix(": ").partition("; --allow")[0]
    sizes = {"nodes": len(nodes), "operators": len(set(nodes)), "weight_bytes": stored_bytes(model)}
    return {"seconds": seconds, **sizes, "result": result}


def _torchscript(module: PhaseModule, opset: int) -> onnx_ir.Model:
    signature = module.signature
    feeds = signature.feeds(module.example, padding="left")
    specs = (*signature.inputs, *signature.outputs)
    free = {
        spec.name: {i: f"{spec.name}_{i}" for i, dim in enumerate(spec.shape) if isinstance(dim, str)} for spec in specs
    }
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), quiet():
        file = Path(folder) / "model.onnx"
        torch.onnx.export(
            module,
            tuple(torch.from_numpy(array) for array in feeds.values()),
            file,
            dynamo=False,
            opset_version=opset,
            dynamic_axes={name: axes for name, axes in free.items() if axes},
            input_names=[spec.name for spec in signature.inputs],
            output_names=[spec.name for spec in signature.outputs],
        )
        model = onnx_ir.load(file)
        onnx_ir.external_data.load_to_model(model)
        return model
