"""Placement: which runtimes there are, and where the nodes really ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtimes import all_runtimes
from ..evaluation import SOURCES
from .finding import Finding, refuse

CHECK = "placement"
# They say what is right, and are not judged themselves.
JUDGES = ("reference", "reference-ideal", "reference-sharp", "reference-strict")
NOT_GRAPHS = ("torch", "torch-cuda", "torch-compile", "torch-compile-cuda")  # they run the source, not the graph


def choose(asked: list[str]) -> list[str]:
    """The runtimes to validate on: those that were asked for, or every one that is here.

    Raises:
        Refusal: an unknown one, one that cannot run here, or none at all.
    """
    known = {name: runtime for name, runtime in all_runtimes().items() if name not in (*JUDGES, *NOT_GRAPHS)}
    for name in asked:
        if name not in known:
            raise refuse(CHECK, f"unknown runtime {name!r}; there are {', '.join(known)}")
        reason = known[name].missing()
        if reason is not None:
            raise refuse(CHECK, f"{name} was asked for and cannot run here: {reason}")
    present = asked or sorted((name for name in known if known[name].missing() is None), key=_plainest)
    if not present:
        raise refuse(CHECK, "no runtime is installed: pip install 'isorun[cpu]'")
    return present


def _plainest(name: str) -> tuple[bool, str]:
    """ONNX Runtime first: it runs the graph as it stands when its optimisations are off."""
    return not name.startswith("ort"), name


def check(placements: Mapping[tuple[str, bool], Mapping[str, Any]]) -> list[Finding]:
    """Where the nodes ran, and in which precision."""
    findings = []
    for (runtime, optimise), placed in placements.items():
        if optimise and runtime not in (*JUDGES, *SOURCES):
            nodes = ", ".join(f"{count} nodes on {provider}" for provider, count in placed["nodes"].items())
            says = f"{runtime}: {nodes}, {placed['precision']}, {placed['threads']} thread(s)"
            findings.append(Finding(check=CHECK, status="pass", says=says, data=dict(placed)))
    return findings
