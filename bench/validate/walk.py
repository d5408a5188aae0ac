"""The walk: graph and reference side by side in float64, value by value, to say where they part.

A value of the graph is compared with its twin twice: `local` is the distance when the reference goes on from the
graph's own values, `error` the distance of two separate evaluations. So `local` names the operator at fault, also
behind other faults and under the errors of a quantised graph; `error` says how errors grow from layer to layer. Values
that only the graph has are part of the step that reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...export.source import Source
from ...models.signature import Array, Feeds
from ...runtimes.base import RuntimeFailure
from ...runtimes.reference import Float64Graph, NodeFailure
from ..evaluation import limit
from .compare import SAME, difference, scale
from .regions import Regions

if TYPE_CHECKING:
    import onnx

    from ...runtimes.reference import Watch


@dataclass(frozen=True)
class Origin:
    """Where a value comes from: the operator, the path of its module, and the line of source that called it."""

    op: str
    module: str
    line: str


class Reference(Protocol):
    """What a graph is walked against; values go by the names that they have in the graph.

    `certain` says that names pair them; if not, values of other shapes are none of a pair.
    """

    certain: bool

    @property
    def origins(self) -> Mapping[str, Origin]:
        """The values that there are, and where they come from."""

    def may_be(self, node: onnx.NodeProto, value: str) -> bool:
        """Whether the node that makes a value of this name is the one behind the origin."""

    def run(self, feeds: Feeds, watch: Callable[[str, Array], Array | None]) -> None:
        """Evaluate it; `watch` gets each value and may answer another to go on with."""

    def parameters(self, value: str) -> dict[str, Array]:
        """The stored tensors that the operator behind a value reads, by name."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One value that both sides have: the node that makes it, its origin, and the two distances, relative.

    `differs` says whether `local` is more than 1e-9 of the scale; `says` how. `weights` are tensors of the reference
    that the graph holds with other values; `quantised`, whether integers stand for weights or activations here;
    `floats`, whether it is a tensor of floats; `within`, the values of the graph alone that lead to this one: those of
    an operator that an exporter writes in several nodes. A distance is infinite where values cannot be compared.
    """

    value: str
    node: str
    op: str
    module: str
    line: str
    local: float
    error: float
    differs: bool
    says: str
    floats: bool = True
    quantised: bool = False
    weights: tuple[str, ...] = ()
    within: tuple[str, ...] = ()


def answer(
    file: str, source: dict[str, Any], phase: str, opset: int, inputs: str, names: list[str], memory_bytes: int
) -> dict[str, Any]:
    """The steps of a file beside its source, as a worker answers them; inputs as in `Evaluation.evaluate`."""
    limit(memory_bytes)
    with np.load(inputs, allow_pickle=False) as archive:
        feeds = {name: archive[f"arr_{i}"] for i, name in enumerate(names)}
    return {"steps": [asdict(step) for step in walk(file, Source(**source), phase, opset, feeds)]}


def walk(file: str, source: Source, phase: str, opset: int, feeds: Feeds) -> list[Step]:
    """The steps of a file beside its source: another file, or a module that is traced as an export does."""
    import onnx

    model = onnx.load(file)
    if source.kind == "file":
        from .twin import Twin

        return against(model, Twin(onnx.load(source.name), model), feeds)
    from .program import Program

    return against(model, Program(source, phase, opset), feeds)


def against(model: onnx.ModelProto, reference: Reference, feeds: Feeds) -> list[Step]:
    """The steps in the order of the graph; those up to the node that fails, if one does."""
    found: dict[str, Array] = {}
    makers: dict[str, onnx.NodeProto] = {}

    def keep(node: onnx.NodeProto, name: str, value: Array) -> None:
        if name in reference.origins and reference.may_be(node, name):
            found[name], makers[name] = value, node

    stopped = _run(model, feeds, keep)
    apart, together = _Gaps(found, reference.certain), _Gaps(found, reference.certain, go_on=True)
    reference.run(feeds, apart)
    with suppress(RuntimeFailure):  # what the graph answers may be nothing to go on with
        reference.run(feeds, together)
    regions = Regions(model, found)
    steps = []
    for name, node in makers.items():
        if name not in together.distance:
            continue
        origin, says = reference.origins[name], together.says.get(name, "")
        steps.append(
            Step(
                value=name,
                node=node.name,
                op=node.op_type,
                module=origin.module,
                line=origin.line,
                local=together.distance[name],
                error=apart.distance[name],
                differs=bool(says),
                says=says,
                floats=found[name].dtype.kind == "f" and found[name].ndim > 0,
                quantised=regions.quantised(name),
                weights=regions.changed(name, reference.parameters(name)) if says else (),
                within=regions.within(name) if says else (),
            )
        )
    return [*steps, _halt(stopped, regions)] if stopped else steps


def _run(model: onnx.ModelProto, feeds: Feeds, watch: Watch) -> NodeFailure | None:
    """Evaluate a graph; the failure of a node, if one ends it."""
    try:
        Float64Graph(model).run(feeds, watch)
    except NodeFailure as failure:
        return failure
    except RuntimeFailure:  # not even the first node ran
        pass
    return None


def _halt(failure: NodeFailure, regions: Regions) -> Step:
    """The step that cannot be made. As with any other, what the graph alone has on the way to it is a part of it."""
    node, inf = failure.node, float("inf")
    origin, value = told(node), next(iter(node.output), "")
    return Step(
        value=value,
        node=node.name,
        op=node.op_type,
        module=origin.module,
        line=origin.line,
        local=inf,
        error=inf,
        differs=True,
        says=str(failure),
        within=regions.within(value),
    )


class _Gaps:
    """Watches a reference: how far is each value from the graph's, and with which of the two is it to go on?"""

    def __init__(self, found: Mapping[str, Array], certain: bool, *, go_on: bool = False) -> None:
        self._found = found
        self._certain = certain
        self._go_on = go_on
        self.distance: dict[str, float] = {}
        self.says: dict[str, str] = {}

    def __call__(self, name: str, value: Array) -> Array | None:
        if name not in self._found or not (self._certain or self._found[name].shape == value.shape):
            return None
        found, size = self._found[name], scale(value)
        gap = difference(name, found, value, SAME * size)
        self.distance[name] = gap.rms / size if np.isfinite(gap.rms) and size else gap.rms
        if gap.real:
            self.says[name] = str(gap)
        # Not with whole numbers: a wrong one may be no index, and then the reference would go no further.
        same = found.dtype == value.dtype == np.float64 and found.shape == value.shape and value.ndim > 0
        return found.copy() if self._go_on and same else None


def told(node: onnx.NodeProto) -> Origin:
    """What torch's exporter leaves in a node; empty where it left nothing."""
    from .lines import deepest

    entries = {entry.key: entry.value for entry in node.metadata_props}
    scopes = entries.get("pkg.torch.onnx.name_scopes", "").strip("[]").replace("'", "").split(", ")
    target = entries.get("pkg.torch.onnx.fx_node", "").partition("target=torch.ops.")[2].partition("]")[0]
    module = scopes[-2] if len(scopes) > 1 and not scopes[-2].startswith("_") else ""  # torch's word for none
    return Origin(target, module, deepest(entries.get("pkg.torch.onnx.stack_trace", "")))
