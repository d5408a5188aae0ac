"""Exports below the default opset: operators are taken apart, and the graph stays the same function."""

from __future__ import annotations

from pathlib import Path

import pytest

from isorun.bench.truth import distance
from isorun.export.exporter import export
from isorun.export.outputs import outputs64
from isorun.export.source import Source
from isorun.runtimes.reference import Float64Graph


@pytest.mark.parametrize("name", ["llama3-8b", "lstm"])
def test_opset_18_is_the_same_function_up_to_rounded_constants(tmp_path: Path, name: str) -> None:
    artifact = export(Source("preset", name, "tiny"), "step", tmp_path / name, opset=18)
    assert artifact.opset == 18
    feeds = artifact.signature().feeds({"batch": 3, "sequence": 7, "past": 5}, padding="left")
    found = Float64Graph(artifact.model_path).run(feeds)
    for output, truth in outputs64(artifact.module(), feeds).items():
        assert distance(found[output], truth) <= 1e-6, output  # float32 constants in the decomposed attention
