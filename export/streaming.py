"""Exports of models that do not fit into memory: the graph is traced without weights, which are made one at a time.

A module is built with parameters on the meta device, which have a shape and no values, and traced there. Each
initializer of the graph then becomes a promise: the weights of one layer, drawn from the seed or read from the
checkpoint when they are written, in the precision of the graph, and forgotten. What is folded into weights otherwise,
the transpose of each matrix, becomes part of the promise.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass
from torch import Tensor

from ..models.checkpoints import stored
from ..models.deferred import Draw, seeded
from ..models.phases import PhaseModule, phase_module
from ..models.presets import PRESETS
from .source import Source, SourceError, refuse_unknown
from .trace import Guard, traced

STREAMED = ("preset", "checkpoint")  # kinds of sources
AT_ONCE = 16  # bytes for each weight of the layer that is being written: drawn, turned, converted, written
REST = 2**30  # bytes for the libraries and the graph


def needed_bytes(module: PhaseModule) -> int:
    """The memory that streaming takes: that of the largest layer."""
    own = (sum(p.numel() for p in layer.parameters(recurse=False)) for layer in module.modules())
    return AT_ONCE * max(own) + REST


def without_weights(source: Source, phase: str) -> tuple[PhaseModule, Draw]:
    """The module of a phase without weights, and the weights by parameter name.

    Raises:
        SourceError: the source makes its weights itself, all at once.
    """
    if source.kind == "preset":
        refuse_unknown(source)
        config = PRESETS[source.name].at(source.size)  # type: ignore[arg-type]
        model, draw = seeded(config, source.seed)
    elif source.kind == "checkpoint":
        config, model, draw = stored(Path(source.name))
    else:
        raise SourceError(
            f"{source.name}: a {source.kind} source makes its weights all at once, so none can be streamed"
        )
    return phase_module(config, phase, model=model), lambda name: draw(name.removeprefix("model."))


def trace_without_weights(
    source: Source, module: PhaseModule, draw: Draw, opset: int
) -> tuple[ir.Model, tuple[Guard, ...]]:
    """The traced model of a module without weights, with promises in their place, and the guards of the trace."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    buffers = dict(module.named_buffers())

    def reveal(model: ir.Model) -> None:
        """Buffers have values that can be folded, and weights have none."""
        for name, value in model.graph.initializers.items():
            if name in parameters:
                value.const_value = None
            elif name in buffers:
                value.const_value = ir.tensor(buffers[name].numpy(), name=name)

    program, guards = traced(deepcopy(module).to("meta"), source, opset, reveal)
    model: ir.Model = program.model
    for name, value in model.graph.initializers.items():
        if name in parameters:
            value.const_value = _promised(draw, name, parameters[name])
    _fold_transposes(model)
    return model, guards


def _promised(draw: Draw, name: str, parameter: Tensor) -> ir.LazyTensor:
    return ir.LazyTensor(
        lambda: ir.tensor(draw(name).numpy(), name=name),
        dtype=ir.DataType.FLOAT,
        shape=ir.Shape(parameter.shape),
        name=name,
    )


def _fold_transposes(model: ir.Model) -> None:
    """A matrix that is read through a transpose alone is stored the other way round, as an ordinary export does."""
    for value in list(model.graph.initializers.values()):
        readers = value.consumers()
        if not isinstance(value.const_value, ir.LazyTensor) or len(readers) != 1 or len(value.const_value.shape) != 2:
            continue
        node = readers[0]
        if node.op_type == "Transpose" and not node.outputs[0].is_graph_output():
            value.const_value = _transposed(value.const_value)
            value.shape = value.const_value.shape
            node.outputs[0].replace_all_uses_with(value)
    RemoveUnusedNodesPass()(model)


def _transposed(tensor: ir.LazyTensor) -> ir.LazyTensor:
    rows, columns = tensor.shape.numpy()
    return ir.LazyTensor(
        lambda: ir.tensor(tensor.numpy().T.copy(), name=tensor.name),
        dtype=tensor.dtype,
        shape=ir.Shape((columns, rows)),
        name=tensor.name,
    )
