"""What a run remembers of its graphs is what lies in the folder."""

from __future__ import annotations

from pathlib import Path

import onnx

from isorun.bench.exported import facts, joined
from isorun.bench.suite import Group
from isorun.export.source import Source
from isorun.models.presets import PRESETS

from ..conftest import Exported


def test_facts_are_those_of_the_graph(exported: Exported) -> None:
    artifact = exported("gpt2", "forward")
    config = PRESETS["gpt2"].at("tiny")
    found = facts(Group(Source("preset", "gpt2", "tiny"), config, "forward", "fp32", (8,)), artifact.folder)
    assert found is not None
    graph = onnx.load(artifact.model_path, load_external_data=False)
    assert sum(found["ops"].values()) == len(graph.graph.node)
    assert found["opset"] == next(item.version for item in graph.opset_import if not item.domain)
    assert (found["model"], found["size"], found["phase"], found["dtype"]) == ("gpt2", "tiny", "forward", "fp32")
    assert found["max_tokens"] == config.context
    assert found["sizes"]["file_bytes"] >= artifact.model_path.stat().st_size


def test_an_export_that_failed_has_none(tmp_path: Path) -> None:
    group = Group(Source("preset", "gpt2", "tiny"), None, "forward", "fp32", (8,))
    assert facts(group, tmp_path) is None


def test_a_graph_that_was_exported_again_counts_once() -> None:
    about = {"model": "gpt2", "size": "tiny", "phase": "forward", "dtype": "fp32"}
    other = {**about, "phase": "step", "seconds": 1.0}
    assert joined([{**about, "seconds": 2.0}, other], [{**about, "seconds": 3.0}]) == [
        {**about, "seconds": 3.0},
        other,
    ]
