"""The source as torch.export sees it, node by node in float64: its values bear the names that the exporter gives them.

This is a part of a worker that imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, fx

from ...export.opsets import DEFAULT_OPSET
from ...export.source import Source
from ...export.trace import trace
from ...models.signature import Array, Feeds
from ...runtimes.base import RuntimeFailure
from .lines import deepest
from .walk import Origin, told

if TYPE_CHECKING:
    import onnx

GUARDS = ("assert", "sym_constrain")  # parts of the names of operators that only check sizes

Watch = Callable[[str, Array], Array | None]  # a value, and what to go on with in its place


class Program:
    """A traced source with its weights in float64."""

    certain = True

    def __init__(self, source: Source, phase: str, opset: int = DEFAULT_OPSET) -> None:
        """Trace it as an export does.

        Raises:
            ExportError: the exporter refuses it.
        """
        module = source.module(phase).eval()
        self._signature = module.signature
        program: Any = trace(module, source, opset).exported_program
        self._graph: fx.GraphModule = program.graph_module
        for part in self._graph.modules():
            if isinstance(part, fx.GraphModule):
                _widen(part)
        stored = {**program.state_dict, **program.constants}
        specs = program.graph_signature.input_specs
        self._stored = [stored.get(spec.target) if spec.target else None for spec in specs]
        placeholders = [node.name for node in self._graph.graph.nodes if node.op == "placeholder"]
        self._parameters = {name: spec.target for name, spec in zip(placeholders, specs, strict=True) if spec.target}
        self._values = stored
        outputs = (spec.name for spec in self._signature.outputs)
        self._names: dict[str, str] = dict(zip(program.graph_signature.user_outputs, outputs, strict=True))
        nodes = [node for node in self._graph.graph.nodes if node.op == "call_function"]
        self.origins = {self._name(node): _origin(node) for node in nodes}
        self._reads = {self._name(node): [read.name for read in node.all_input_nodes] for node in nodes}

    def run(self, feeds: Feeds, watch: Watch) -> None:
        """Evaluate all nodes; `watch` gets every value, a size as an array of no axes, under its name in the graph.

        Raises:
            RuntimeFailure: a node fails, on values that `watch` has put in place of others.
        """
        given = iter(torch.from_numpy(np.asarray(feeds[spec.name])) for spec in self._signature.inputs)
        arguments = [next(given) if tensor is None else tensor for tensor in self._stored]
        try:
            with torch.inference_mode():
                _Interpreter(self._graph, watch, self._names).run(*arguments)
        except (RuntimeError, IndexError) as error:
            raise RuntimeFailure(f"the source in float64: {str(error).strip().splitlines()[0]}") from error

    def parameters(self, value: str) -> dict[str, Array]:
        """The stored tensors that the operator behind a value reads, by their names in the module."""
        names = (self._parameters[read] for read in self._reads[value] if read in self._parameters)
        return {name: self._values[name].detach().numpy() for name in names}

    def may_be(self, node: onnx.NodeProto, value: str) -> bool:
        """Whether a node, by what it tells of itself, comes from there: every trace counts its names anew."""
        origin, claim = self.origins[value], told(node)
        return not claim.op or (claim.op, claim.module) == (origin.op, origin.module)

    def _name(self, node: fx.Node) -> str:
        return self._names.get(str(node.name), str(node.name))


class _Interpreter(fx.Interpreter):
    """Calls a function with every value, and goes on with what it answers."""

    def __init__(self, module: fx.GraphModule, watch: Watch, names: Mapping[str, str]) -> None:
        super().__init__(module)
        self._watch = watch
        self._names = names

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> Any:
        """What a node reads, in float64: weights are widened one at a time, and so are never held twice."""
        return fx.node.map_aggregate(super().fetch_args_kwargs_from_env(n), _double)

    def run_node(self, n: fx.Node) -> Any:
        """One node; those that only check sizes are left out, since a size is no question here."""
        if any(part in n.name for part in GUARDS):
            return None
        result = super().run_node(n)
        if n.op != "call_function" or not isinstance(result, Tensor | int | float):
            return result
        array = result.numpy() if isinstance(result, Tensor) else np.asarray(result)
        other = self._watch(self._names.get(n.name, n.name), array)
        return torch.from_numpy(other) if other is not None and isinstance(result, Tensor) else result


def _double(value: Any) -> Any:
    return value.detach().double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _widen(module: fx.GraphModule) -> None:
    """Every float type that a node names becomes float64, as `export.passes.upcast` does with a graph."""
    for node in module.graph.nodes:
        node.args, node.kwargs = fx.map_arg(node.args, lambda n: n), fx.map_arg(node.kwargs, lambda n: n)
        node.args = fx.node.map_aggregate(node.args, _wide)
        node.kwargs = fx.node.map_aggregate(node.kwargs, _wide)
    for name, buffer in module.named_buffers(recurse=False):
        setattr(module, name, _double(buffer))


def _wide(value: Any) -> Any:
    return torch.float64 if value in (torch.float16, torch.bfloat16, torch.float32) else value


def _origin(node: fx.Node) -> Origin:
    """What the trace remembers of a node."""
    stack = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values() if isinstance(path, str)]
    module = stack[-1] if stack and not stack[-1].startswith("_") else ""  # torch's word for none
    return Origin(str(node.target), module, deepest(node.meta.get("stack_trace") or ""))
