"""The exported graphs of every kind of position: the same function as their sources, below and above its lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from isorun.bench.truth import distance
from isorun.export.exporter import export
from isorun.export.outputs import outputs64
from isorun.export.source import Source
from isorun.models.position import Rope
from isorun.models.presets import PRESETS
from isorun.models.rope_scaling import DynamicNTK, LongRope
from isorun.runtimes.reference import Float64Graph

LENGTH = 16  # above it the scalings that look at the length begin
SCALINGS = {
    "dynamic-ntk": DynamicNTK(2.3, LENGTH),
    "longrope": LongRope((1.0, 1.1, 1.2, 1.3), (1.0, 2.0, 3.0, 4.0), 4.0, LENGTH),
}
# The third is the number of Attention operators: a bias is their mask, so runtimes keep their fused kernels.
GRAPHS = [
    ("t5-small", "encode", 2),  # buckets both ways
    ("t5-small", "step", 4),  # buckets of the past, none in cross-attention
    ("bloom-560m", "step", 2),
    ("gpt-j-6b", "step", 2),  # the first dimensions of a head, interleaved
    ("shaw", "encode", 0),  # clipping distance 16
    ("shaw", "step", 2),
    ("transformer-xl", "step", 2),
    ("dynamic-ntk", "step", 2),
    ("longrope", "forward", 2),
]


@pytest.fixture(autouse=True)
def presets_with_a_scaling(monkeypatch: pytest.MonkeyPatch) -> None:
    small = PRESETS["llama3-8b"].at("tiny")
    for name, scaling in SCALINGS.items():
        monkeypatch.setitem(PRESETS, name, replace(small, name=name, position=Rope(scaling=scaling)))


@pytest.mark.parametrize(("name", "phase", "whole"), GRAPHS)
def test_graph_and_source_are_one_function_in_float64(name: str, phase: str, whole: int, tmp_path: Path) -> None:
    artifact = export(Source("preset", name, "full" if name in SCALINGS else "tiny"), phase, tmp_path / "model")
    assert artifact.ops.get("Attention", 0) == whole
    graph, module, declared = Float64Graph(artifact.model_path), artifact.module(), artifact.signature()
    for n in (1, 2, LENGTH, LENGTH + 1, 33):
        for batch, padding in ((1, "none"), (3, "left")):
            for past in (0, 1, 20) if phase == "step" else (0,):
                sizes = {"batch": batch, "sequence": n, "past": past, "source": n + 2}
                feeds = declared.feeds(sizes, seed=n, padding=padding)
                found = graph.run(feeds)
                for output, truth in outputs64(module, feeds).items():
                    assert distance(found[output], truth) <= 1e-9, (sizes, output)
