"""Tiled attention against attention to all keys in NumPy; its memory in torch and in the exported graph."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from isorun.bench.truth import distance as graph_distance
from isorun.export.exporter import export
from isorun.export.outputs import outputs64
from isorun.export.source import Source
from isorun.models.config import ConfigError, ModelConfig
from isorun.models.cost import parameters
from isorun.models.phases import phase_module
from isorun.models.position import NoPosition
from isorun.models.presets import PRESETS
from isorun.models.tiled import Tiled, TiledAttention, block_sizes
from isorun.models.transformer import build
from isorun.runtimes.reference import Float64Graph

from ..conftest import Exported
from .plain import Array, array, attention, causal, distance, linear, merge, randomise, split
from .scaling import call, counted, exponent

BATCH, HEADS, HEAD_DIM, BLOCK = 4, 6, 5, 7
BASE = PRESETS["flash"]
CONFIG = replace(BASE.at("tiny").scaled(dim=HEADS * HEAD_DIM, heads=HEADS, context=1024), position=NoPosition())


def config(kv_heads: int | None = None, block: int = BLOCK, scale: float | None = None) -> ModelConfig:
    return replace(CONFIG, mixer=Tiled(kv_heads=kv_heads, block=block, scale=scale))


@cache
def layer(kv_heads: int | None, block: int, *, is_causal: bool, scale: float | None = None) -> TiledAttention:
    built = config(kv_heads, block, scale)
    module = randomise(built.mixers[0].build(built, causal=is_causal))
    assert isinstance(module, TiledAttention)
    return module.requires_grad_(False)


def draw(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def padded(keys: int) -> NDArray[np.int64]:
    """A mask (B, keys) without padding, with some on the left, on the right, in the middle; never nothing but it."""
    mask = np.ones((BATCH, keys), np.int64)
    mask[1, : min(9, keys - 1)] = 0
    mask[2, max(1, keys - 9) :] = 0
    mask[3, 1 : max(1, keys - 2)] = 0
    return mask


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize(("kv_heads", "block"), [(None, 7), (2, 7), (1, 1), (3, 64)])
def test_every_length_is_full_attention(kv_heads: int | None, block: int, is_causal: bool) -> None:
    module = layer(kv_heads, block, is_causal=is_causal)
    for past in (0, 1, 13):
        shape = (BATCH, kv_heads or HEADS, past, HEAD_DIM)
        kept = draw(1, *shape), draw(2, *shape)
        for n in (1, 2, 6, 7, 8, 14, 15, 40):
            x, mask = draw(n, BATCH, n, HEADS * HEAD_DIM), padded(past + n)
            plan = module.plan(torch.from_numpy(mask), n)
            y, present = module(torch.from_numpy(x), plan, lambda rotated: rotated, tuple(map(torch.from_numpy, kept)))
            q, k, v = (split(linear(x, part), HEAD_DIM) for part in (module.q, module.k, module.v))
            k, v = np.concatenate((kept[0], k), 2), np.concatenate((kept[1], v), 2)
            allowed = (
                causal(mask, n) if is_causal else np.broadcast_to(mask[:, None, None] > 0, (BATCH, 1, n, past + n))
            )
            assert distance(y, linear(merge(attention(q, k, v, allowed)), module.o)) < 1e-12, (past, n)
            assert max(distance(a, b) for a, b in zip(present, (k, v), strict=True)) < 1e-12


def test_large_scores_do_not_overflow() -> None:
    """The largest score so far is taken out before e^s: scores of 10,000, rising and falling from block to block."""
    module = layer(None, BLOCK, is_causal=False)
    q = torch.ones(1, HEADS, 3, HEAD_DIM, dtype=torch.float64) * HEAD_DIM**-0.5
    k = torch.linspace(-1e4, 1e4, 40, dtype=torch.float64)[:, None].expand(1, HEADS, 40, HEAD_DIM)
    v = torch.from_numpy(draw(0, 1, HEADS, 40, HEAD_DIM))
    for keys in (k, k.flip(2), k[:, :, torch.randperm(40, generator=torch.Generator().manual_seed(0))]):
        y = module.attend(q, keys, v, module.plan(torch.ones(1, 40, dtype=torch.int64), 3))
        everything = np.ones((1, 1, 3, 40), bool)
        assert distance(y, attention(array(q), array(keys), array(v), everything)) < 1e-12


def test_a_scale_of_its_own() -> None:
    module, x = layer(None, BLOCK, is_causal=True, scale=0.5), draw(3, BATCH, 20, HEADS * HEAD_DIM)
    y, _ = module(torch.from_numpy(x), module.plan(torch.from_numpy(padded(20)), 20), lambda rotated: rotated, ())
    q, k, v = (split(linear(x, part), HEAD_DIM) for part in (module.q, module.k, module.v))
    expected = attention(q * 0.5 * HEAD_DIM**0.5, k, v, causal(padded(20), 20))
    assert distance(y, linear(merge(expected), module.o)) < 1e-12


def test_flash_is_gpt2_with_the_same_weights() -> None:
    """The preset as a whole: one function with plain attention, which does not know of blocks."""
    tiny, plain = BASE.at("tiny"), PRESETS["gpt2"].at("tiny")
    assert parameters(BASE) == parameters(PRESETS["gpt2"]) == 124_439_808
    tiled, full = build(tiny).double(), build(plain, seed=1).double()
    full.load_state_dict(tiled.state_dict())
    module, other = phase_module(tiny, "forward", model=tiled), phase_module(plain, "forward", model=full)
    for n in (1, 16, 17, 50):  # a block is 16 keys at this size
        feeds = module.signature.feeds({"batch": 3, "sequence": n}, padding="left").values()
        tensors = [torch.from_numpy(array) for array in feeds]
        assert distance(*module(*tensors), *other(*tensors)) < 1e-12


@pytest.mark.parametrize("n", [1, 7, 8, 50])
@pytest.mark.parametrize("kv_heads", [None, 2])
def test_operations_are_those_that_torch_counts(kv_heads: int | None, n: int) -> None:
    built = config(kv_heads)
    assert built.mixers[0].flops(built, n, n) == counted(call(built, causal=True), n)


@pytest.mark.parametrize("block", [1, 7, 64])
def test_blocks_hold_each_key_once(block: int) -> None:
    for keys in range(1, 3 * block + 2):
        blocks, size = block_sizes(keys, block)
        assert (blocks - 1) * size < keys <= blocks * size
        assert size <= min(block, keys)


# Peak memory of one layer above what the process had before, by length; a process of its own, from short to long. Not
# `ru_maxrss`: that begins at the size of the process that started this one.
PEAKS = """
import json
from pathlib import Path
{setup}
def peak():
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
run(256)
before = peak()
found = []
for n in {lengths}:
    run(n)
    found.append(peak() - before)
print(json.dumps(found))
"""
TORCH = """
from dataclasses import replace
import torch
from isorun.models.attention import Softmax
from isorun.models.position import NoPosition
from isorun.models.presets import PRESETS
from isorun.models.tiled import Tiled
torch.set_num_threads(1)
config = replace(PRESETS["flash"].at("tiny").scaled(dim=16, heads=1), position=NoPosition(), mixer={mixer})
layer = config.mixers[0].build(config, causal=True)
def run(n):
    with torch.inference_mode():
        plan = layer.plan(torch.ones(1, n, dtype=torch.int64), n)
        layer(torch.randn(1, n, 16), plan, lambda rotated: rotated, ())
"""
GRAPH = """
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.enable_cpu_mem_arena = 1, False
session = onnxruntime.InferenceSession({path!r}, options, providers=["CPUExecutionProvider"])
def run(n):
    session.run(None, {{"input_ids": np.zeros((1, n), np.int64), "attention_mask": np.ones((1, n), np.int64)}})
"""


def peaks(setup: str, lengths: tuple[int, ...]) -> list[int]:
    code = PEAKS.format(setup=setup, lengths=lengths)
    # glibc would raise the size from which it maps blocks, and keep what was freed below it: peaks would then jump.
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    found: list[int] = json.loads(done.stdout)
    return found


def test_memory_in_torch_is_linear_up_to_16384() -> None:
    """Plain attention, measured alike, is what the limit tells apart: its mask and scores grow fourfold."""
    lengths = (4096, 8192, 16_384)
    assert exponent(lengths, peaks(TORCH.format(mixer="Tiled(block=128)"), lengths)) < 1.2
    assert exponent((4096, 8192), peaks(TORCH.format(mixer="Softmax()"), (4096, 8192))) > 1.6


def test_memory_of_the_graph_is_linear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer on ONNX Runtime; the scores of both heads alone would take 512 MiB at 8192."""
    small = BASE.at("tiny").scaled(dim=32, heads=2, layers=1, vocab=32)
    bare = replace(small, name="flash-layer", position=NoPosition(), mixer=Tiled(block=128))
    monkeypatch.setitem(PRESETS, "flash-layer", bare)
    artifact = export(Source("preset", "flash-layer"), "forward", tmp_path / "layer")
    assert artifact.ops["Scan"] == 1
    lengths = (2048, 4096, 8192)
    found = peaks(GRAPH.format(path=str(artifact.model_path)), lengths)
    assert exponent(lengths, found) < 1.2
    assert found[-1] < 128 * 2**20


def test_the_graph_is_the_module(exported: Exported) -> None:
    artifact = exported("flash", "step")
    assert artifact.ops["Scan"] == 2
    graph, module, declared = Float64Graph(artifact.model_path), artifact.module(), artifact.signature()
    for batch, n, past in ((1, 1, 0), (3, 1, 20), (3, 2, 1), (1, 7, 20), (3, 33, 0), (3, 33, 20)):
        sizes = {"batch": batch, "sequence": n, "past": past}
        feeds = declared.feeds(sizes, seed=n, padding="left")
        found = graph.run(feeds)
        for output, truth in outputs64(module, feeds).items():
            assert graph_distance(found[output], truth) <= 1e-9, (sizes, output)


def test_what_cannot_be_tiled_is_refused() -> None:
    with pytest.raises(ConfigError, match="block 0 is below 1"):
        config(block=0)
    with pytest.raises(ConfigError, match=r"no softcap, and 50\.0 is given"):
        replace(CONFIG, mixer=Tiled(block=4, softcap=50.0))
    with pytest.raises(ConfigError, match="kv_heads 4 does not divide heads 6"):
        config(kv_heads=4)
