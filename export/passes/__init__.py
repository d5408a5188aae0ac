"""Graph passes, one a file, and which of them a target takes.

A pass has a function `apply(model) -> str`, which rewrites every place where its condition holds and says how many, or
why none. It is tried on a copy first. Where the caller brings a proof, copy and original have to be one function, or
the pass is not applied and the note says so: an export goes on with the graph that it had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from . import bidirectional, causal, decomposed, layout, rotary
from .graph import MICROSOFT

Prove = Callable[[ir.Model, ir.Model], str | None]  # before and after → what is wrong, or None

TARGETS = ("portable", "ort-cpu", "ort-cuda")
_PASSES: Mapping[str, tuple[ModuleType, ...]] = {
    "portable": (),
    "ort-cpu": (decomposed, rotary, causal, bidirectional, layout),
    "ort-cuda": (),
}
_GUESSES = (decomposed,)  # passes whose conditions leave something to the proof
_NONE: Mapping[str, str] = {
    "ort-cuda": "the portable graph: the CUDA kernels of fused attention have no float32, and none was measured",
}
# SkipLayerNormalization is slower on the CPU than Add and LayerNormalization, which it replaces (docs/fast.md).
_SESSION: Mapping[str, Mapping[str, str]] = {"ort-cpu": {"disabled_optimizers": "SkipLayerNormFusion"}}
KERNELS = (1, 32)  # the ONNX Runtime whose kernels do all that the passes write, `query_seqlens` above all


def apply(model: ir.Model, target: str, prove: Prove | None = None) -> list[str]:
    """Run the passes of a target on a model, in place; one note a pass.

    Raises:
        ValueError: an unknown target.
    """
    if target not in TARGETS:
        raise ValueError(f"target {target!r} is none of {', '.join(TARGETS)}")
    old = _too_old() if _PASSES[target] else None
    if old is not None:
        return [
            f"{target}: the portable graph: its kernels need ONNX Runtime {'.'.join(map(str, KERNELS))}, here is {old}"
        ]
    notes = [f"{target}: {_NONE[target]}"] if target in _NONE else []
    for one in _PASSES[target]:
        notes.append(f"{one.__name__.rpartition('.')[2]}: {_run(one, model, prove)}")
    return notes


def _run(one: ModuleType, model: ir.Model, prove: Prove | None) -> str:
    if prove is None and one in _GUESSES:
        return "not applied: nothing here can prove it"
    trial = model.clone()
    said: str = _rewrite(one, trial)
    if said.startswith("not applied"):
        return said
    wrong = prove(model, trial) if prove is not None else None
    if wrong is not None:
        return f"rolled back: {wrong}"
    model.graph = trial.graph
    model.functions.clear()
    model.functions.update(trial.functions)
    return f"{said}, not proved" if prove is None else f"{said}, the same function in float64"


def _rewrite(one: ModuleType, model: ir.Model) -> str:
    said: str = one.apply(model)
    RemoveUnusedNodesPass()(model)
    if any(node.domain == MICROSOFT for node in model.graph.all_nodes()):
        model.graph.opset_imports.setdefault(MICROSOFT, 1)
    return said


def session(target: str) -> dict[str, str]:
    """The session options that a target is faster with."""
    return dict(_SESSION.get(target, {}))


def aliases(model: ir.Model) -> dict[str, str]:
    """Present → past, by name, for each cache that GroupQueryAttention can extend in place."""
    return causal.aliases(model.graph)


def _too_old() -> str | None:
    """The version of an installed ONNX Runtime that lacks kernels; None where it has them, or none is installed."""
    for wheel in ("onnxruntime", "onnxruntime-gpu"):
        try:
            found = version(wheel)
        except PackageNotFoundError:
            continue
        return found if tuple(int(part) for part in found.split(".")[:2]) < KERNELS else None
    return None
