"""The float64 arbiter: the graph itself, every float of it in double, evaluated by the ONNX reference.

Plain NumPy, free of any optimisation: it says what the graph means, so that a runtime's rounding, a runtime's fault and
an exporter's fault can be told apart. Against the source model in float64 a graph at opset 23 agrees to about 1e-15 of
the output's scale. At opset 18 it may agree to 1e-8 only, because an expanded operator can keep a constant, such as the
square root of the attention scale, as a float32 initializer (see `export.passes.upcast`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .base import Placement, RuntimeFailure
from .reference_constants import sharpened
from .reference_weights import AT_ONCE, NARROW, Values, weights_apart, wide

if TYPE_CHECKING:
    import onnx

    from ..export.artifact import ExportedModel
    from ..models.signature import Array, Feeds

if TYPE_CHECKING:
    # A node, one of its outputs and the value → what to go on with in its place, or None.
    Watch = Callable[[onnx.NodeProto, str, Array], Array | None]


MOVES = ("Gather", "Slice")


class NodeFailure(RuntimeFailure):
    """One node cannot be evaluated on these inputs."""

    def __init__(self, node: onnx.NodeProto, reason: str) -> None:
        super().__init__(reason)
        self.node = node


class Float64Graph:
    """A model evaluated in float64, from a file (its external data beside it) or from a proto."""

    def __init__(self, model: str | Path | onnx.ModelProto, *, ideal: bool = False, sharp: bool = False) -> None:
        """Upcast the graph and prepare its nodes.

        `ideal` leaves out the rounding of quantised activations; `sharp` takes exact constants for rounded ones.

        Raises:
            RuntimeFailure: the model cannot be read, or has an operator that the reference lacks.
        """
        import onnx
        from onnx.reference import ReferenceEvaluator

        from ..export.passes.upcast import upcast
        from .reference_ops import operators

        name = model.graph.name if isinstance(model, onnx.ModelProto) else str(model)
        with mapped(name):
            proto, weights = weights_apart(model if isinstance(model, onnx.ModelProto) else Path(model))
            proto = upcast(_sharpened(proto) if sharp else proto)
            evaluator = ReferenceEvaluator(proto, new_ops=list(operators(ideal=ideal)))
        if sum(array.nbytes for array in weights.values()) <= AT_ONCE:
            weights = {name: wide(array) for name, array in weights.items()}
        self._constants: dict[str, Array] = {**evaluator.rt_inits_, **weights}
        self._inputs = [info.name for info in proto.graph.input if info.name not in self._constants]
        self._outputs: list[str] = list(evaluator.output_names)
        self._nodes: list[Any] = evaluator.rt_nodes_
        self._dead = _last_reads([node.onnx_node for node in self._nodes], {*self._outputs, *self._constants, ""})

    @property
    def nodes(self) -> int:
        """The number of nodes of the main graph, local functions inlined."""
        return len(self._nodes)

    def run(self, feeds: Feeds, watch: Watch | None = None) -> dict[str, Array]:
        """The outputs by name; floats are float64. A value is freed once no later node reads it.

        `watch` gets every value of the main graph as it is made, in the order of the nodes, and may exchange it.

        Raises:
            NodeFailure: an operator fails or leaves float64; the message names it.
            RuntimeFailure: an input is missing.
        """
        missing = [name for name in self._inputs if name not in feeds]
        if missing:
            raise RuntimeFailure(f"no feed for the input {', '.join(missing)}")
        values = Values(self._constants)
        values.update(widen(feeds))
        with np.errstate(all="ignore"):  # inf and NaN are values to compare, not accidents
            for node, dead in zip(self._nodes, self._dead, strict=True):
                try:
                    _evaluate(node, values)
                except RuntimeFailure as error:
                    raise NodeFailure(node.onnx_node, str(error)) from error
                if watch is not None:
                    _watch(watch, node, values)
                for name in dead:
                    values.pop(name, None)
        return {name: values[name] for name in self._outputs}


def widen(feeds: Feeds) -> dict[str, Array]:
    """Float feeds as float64; integers and booleans as they are."""
    return {name: wide(array) for name, array in feeds.items()}


def _sharpened(model: onnx.ModelProto) -> onnx.ModelProto:
    sharp = sharpened(model)
    if sharp is None:
        raise RuntimeFailure("the graph has no rounded constant")
    return sharp


def _evaluate(node: Any, values: Values) -> None:
    """Run one node of the evaluator and keep its outputs; an output without a name is dropped."""
    label = f"{node.op_type} ({node.onnx_node.name or ', '.join(filter(None, node.output))})"
    context = {"context": values.seen_by(_reads(node.onnx_node))} if node.need_context() else {}
    moves = node.op_type in MOVES  # such an operator changes no value, so its result may be widened in place of all
    with mapped(label):
        outputs = node.run(*(values.narrow(name) if moves else values[name] for name in node.input), **context)
    for name, value in zip(node.output, map(wide, outputs) if moves else outputs, strict=False):
        if isinstance(value, np.ndarray) and value.dtype.name in NARROW:
            raise RuntimeFailure(f"{label}: the reference returns {value.dtype}, not float64")
        if name:
            values[name] = value


def _watch(watch: Watch, node: Any, values: Values) -> None:
    for name in filter(None, node.output):
        if isinstance(values[name], np.ndarray | np.generic):
            other = watch(node.onnx_node, name, np.asarray(values[name]))
            if other is not None:
                values[name] = other


def _last_reads(nodes: Sequence[onnx.NodeProto], keep: set[str]) -> list[set[str]]:
    """For each node the values that no later one needs, so that n² scores do not pile up layer by layer."""
    needed = set(keep)
    dead: list[set[str]] = []
    for node in reversed(nodes):
        touched = {*_reads(node), *node.output}
        dead.append(touched - needed)
        needed |= touched
    return dead[::-1]


def _reads(node: onnx.NodeProto) -> Iterable[str]:
    """The names that a node reads, those of its subgraphs included."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (info.name for info in graph.output)
            for inner in graph.node:
                yield from _reads(inner)


@contextmanager
def mapped(name: str) -> Iterator[None]:
    """Any failure inside becomes a `RuntimeFailure` of one line: what failed, and the first cause's reason."""
    try:
        yield
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = str(cause).strip().split("\n")[0] or type(cause).__name__
        raise RuntimeFailure(f"{name}: {reason}") from error


class ReferenceSession:
    """One model in float64; staged feeds and raw results are both dicts of arrays by name."""

    def __init__(self, graph: Float64Graph) -> None:
        self._graph = graph

    def stage(self, feeds: Feeds) -> dict[str, Array]:
        """Float feeds as float64; integers as they are."""
        return widen(feeds)

    def run(self, staged: Mapping[str, Array]) -> dict[str, Array]:
        """Evaluate the graph.

        Raises:
            RuntimeFailure: an input is missing, or an operator fails.
        """
        return self._graph.run(staged)

    def fetch(self, raw: dict[str, Array]) -> dict[str, Array]:
        """The outputs by name; floats are float64."""
        return raw

    def placement(self) -> Placement:
        """Every node on the reference, in float64, one after the other."""
        return Placement(provider="reference", nodes={"reference": self._graph.nodes}, precision="float64", threads=1)

    def close(self) -> None:
        """Free the graph."""
        del self._graph


class Reference:
    """The ONNX reference evaluator in float64."""

    name = "reference"

    def missing(self) -> str | None:
        """None, or what to install."""
        absent = [package for package in ("onnx", "scipy") if find_spec(package) is None]
        return f"pip install {' '.join(absent)}" if absent else None

    def prepare(self, artifact: ExportedModel, threads: int, *, optimise: bool = True) -> ReferenceSession:
        """Load and upcast a model; `threads` and `optimise` change nothing.

        Raises:
            RuntimeFailure: the model cannot be read, or has an operator that the reference lacks.
        """
        return ReferenceSession(Float64Graph(artifact.model_path))


RUNTIMES = (Reference(),)
