"""What a run remembers of its graphs is what lies in the folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from isorun.bench.exported import _sparse, facts, joined
from isorun.bench.growth import SEPARATE
from isorun.bench.suite import Group, Point
from isorun.export.source import Source
from isorun.models.cost import flops
from isorun.models.presets import PRESETS
from isorun.models.sparsity import dense

from ..conftest import Exported


def test_facts_are_those_of_the_graph(exported: Exported) -> None:
    artifact = exported("gpt2", "forward")
    config = PRESETS["gpt2"].at("tiny")
    found = facts(Group(Source("preset", "gpt2", "tiny"), config, "forward", "fp32", (Point(1, 8),)), artifact.folder)
    assert found is not None
    graph = onnx.load(artifact.model_path, load_external_data=False)
    assert sum(found["ops"].values()) == len(graph.graph.node)
    assert found["opset"] == next(item.version for item in graph.opset_import if not item.domain)
    assert (found["model"], found["size"], found["phase"], found["dtype"]) == ("gpt2", "tiny", "forward", "fp32")
    assert found["max_tokens"] == config.context
    assert found["sizes"]["file_bytes"] >= artifact.model_path.stat().st_size


def test_a_window_is_named_with_the_length_that_tells() -> None:
    config = PRESETS["mistral-7b"].at("small")
    both = (config, dense(config))
    found = _sparse(config, "forward")
    assert found == {"reads": "a window of 256 tokens", "told_from": 2048}
    for n, apart in ((1024, False), (2048, True)):
        grown = [np.log2(flops(model, "forward", at(n)) / flops(model, "forward", at(n // 2))) for model in both]
        assert (grown[1] - grown[0] >= 1.5 * SEPARATE) == apart
    assert _sparse(config, "step") == {"reads": "a window of 256 tokens", "told_from": None}
    assert _sparse(PRESETS["gpt2"].at("small"), "forward") is None


def test_positions_that_end_too_soon_leave_no_length_that_tells() -> None:
    found = _sparse(PRESETS["bigbird-base"].at("tiny"), "forward")
    assert found == {"reads": "8 blocks of 2 tokens", "told_from": None}


def at(n: int) -> dict[str, int]:
    return {"batch": 1, "sequence": n, "source": n}


def test_an_export_that_failed_has_none(tmp_path: Path) -> None:
    group = Group(Source("preset", "gpt2", "tiny"), None, "forward", "fp32", (Point(1, 8),))
    assert facts(group, tmp_path) is None


def test_a_graph_that_was_exported_again_counts_once() -> None:
    about = {"model": "gpt2", "size": "tiny", "phase": "forward", "dtype": "fp32"}
    other = {**about, "phase": "step", "seconds": 1.0}
    assert joined([{**about, "seconds": 2.0}, other], [{**about, "seconds": 3.0}]) == [
        {**about, "seconds": 3.0},
        other,
    ]
