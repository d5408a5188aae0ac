"""A Mistral layer with a window of 64: does its time grow like n·W?

    pytest tests/benchmarks --benchmark-enable --benchmark-json times.json
    python tests/benchmarks/exponents.py times.json

times it on torch and ONNX Runtime. In the suite each case runs once. Either way the blocks are compared with full
attention under the window's mask: in float64 they are the same function, and each runtime stays within its rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from isorun.bench.records import PARITY_LIMIT
from isorun.bench.truth import distance
from isorun.export.artifact import ExportedModel
from isorun.export.distance import rms
from isorun.export.exporter import export
from isorun.export.outputs import outputs, outputs64
from isorun.export.source import Source
from isorun.models.attention import Attention
from isorun.models.presets import PRESETS
from isorun.models.signature import Array
from isorun.models.window import Window
from isorun.runtimes import all_runtimes

Checks = Callable[[int], tuple[Array, Array, Array]]
LENGTHS = (512, 1024, 2048, 4096)
WINDOW = 64


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExportedModel]:
    """One layer at dim 256, with 8 heads in 2 groups and a vocabulary too small to matter."""
    small = PRESETS["mistral-7b"].at("small")
    mixer = Window(window=WINDOW, kv_heads=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, "layer", replace(small, name="layer", layers=1, vocab=32, mixer=mixer))
        yield export(Source("preset", "layer"), "forward", tmp_path_factory.mktemp("window") / "layer")


def _masked(self: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, plan: object) -> torch.Tensor:
    """Full attention over all keys under the window's mask, in NumPy and head by head: what the blocks must equal."""
    gap = np.arange(q.shape[2])[:, None] - np.arange(k.shape[2])
    hidden = (gap < 0) | (gap >= WINDOW)
    heads = []
    for head, query in enumerate(q[0].numpy()):
        group = head * k.shape[1] // q.shape[1]
        scores = query @ k[0, group].numpy().T * query.dtype.type(q.shape[3] ** -0.5)
        scores[hidden] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        heads.append(weights / weights.sum(-1, keepdims=True) @ v[0, group].numpy())
    return torch.from_numpy(np.stack(heads)[None])


@pytest.fixture(scope="module")
def checks(layer: ExportedModel) -> Checks:
    """By length: the blocks in float64, and masked attention in float32 and in float64."""

    @cache
    def get(n: int) -> tuple[Array, Array, Array]:
        feeds = layer.signature().feeds({"batch": 1, "sequence": n})
        blocks = outputs64(layer.module(), feeds)["logits"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("isorun.models.window.WindowAttention.attend", _masked)
            masked = outputs(layer.module(), feeds)["logits"], outputs64(layer.module(), feeds)["logits"]
        return blocks, *masked

    return get


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("runtime", ["torch", "ort-cpu"])
def test_window_layer(benchmark: BenchmarkFixture, layer: ExportedModel, checks: Checks, runtime: str, n: int) -> None:
    session = all_runtimes()[runtime].prepare(layer, threads=1)
    staged = session.stage(layer.signature().feeds({"batch": 1, "sequence": n}))
    benchmark.extra_info.update(what=f"window 64 on {runtime}", n=n)
    found = session.fetch(benchmark(session.run, staged))["logits"]
    blocks, single, truth = checks(n)
    assert distance(blocks, truth) <= 1e-12
    assert rms(found - truth) <= PARITY_LIMIT * rms(single - truth)
