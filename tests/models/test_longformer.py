"""Longformer against transformers, and against attention under its mask in NumPy; what it costs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import LongformerConfig, LongformerForMaskedLM, LongformerModel, PreTrainedModel

from isorun.bench.truth import distance as graph_distance
from isorun.export.outputs import outputs64
from isorun.models.checkpoints import families, load
from isorun.models.config import ConfigError, ModelConfig
from isorun.models.cost import parameters
from isorun.models.longformer import Longformer, LongformerAttention, block_sizes
from isorun.models.phases import phase_module
from isorun.models.position import Rope
from isorun.models.presets import PRESETS
from isorun.runtimes.reference import Float64Graph

from ..conftest import Exported
from .plain import Array, attention, distance, left_padded, linear, merge, randomise, split
from .scaling import call, counted
from .theirs import Float64, tokens, twins

HEADS, HEAD_DIM, WINDOW, PAD = 6, 4, 8, 1
BASE = PRESETS["longformer-base"]
CONFIG = BASE.at("tiny").scaled(dim=HEADS * HEAD_DIM, heads=HEADS, context=1024)


def theirs() -> LongformerModel:
    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": HEADS, "intermediate_size": 100}
    options = {"vocab_size": 37, "max_position_embeddings": 66, "layer_norm_eps": 0.003, "type_vocab_size": 1}
    windows = {"attention_window": [WINDOW, 4, WINDOW], "pad_token_id": PAD}
    return LongformerModel(LongformerConfig(**sizes, **options, **windows))


# Around one and several windows, odd, as long as its table of positions; rows shorter than half a window.
@pytest.mark.parametrize("lengths", [[33, 20, 1], [4, 4, 2], [5, 3, 1], [8, 7, 6], [1, 1, 1], [64, 50, 9]], ids=str)
def test_states_are_those_of_transformers(lengths: list[int]) -> None:
    hf, config, model = twins(theirs())
    mask = torch.from_numpy(left_padded(lengths)).flip(1)
    ids = torch.where(mask > 0, 2 + tokens(tuple(mask.shape), 35), PAD)
    first = torch.zeros_like(mask)
    first[:, 0] = 1
    with torch.no_grad(), Float64():
        expected = hf(input_ids=ids, attention_mask=mask, global_attention_mask=first)
    states, pooled = phase_module(config, "forward", model=model)(ids, mask, torch.zeros_like(ids))
    assert distance(states[mask > 0], expected.last_hidden_state[mask > 0]) < 1e-10
    assert distance(pooled, expected.pooler_output) < 1e-10


def config(window: int, global_tokens: int) -> ModelConfig:
    return replace(CONFIG, mixer=Longformer(window=window, global_tokens=global_tokens))


@cache
def layer(window: int, global_tokens: int) -> LongformerAttention:
    built = config(window, global_tokens)
    module = randomise(built.mixers[0].build(built, causal=False))
    assert isinstance(module, LongformerAttention)
    return module.requires_grad_(False)


def ours(module: LongformerAttention, x: Array, mask: NDArray[np.int64]) -> Tensor:
    plan = module.plan(torch.from_numpy(mask), x.shape[1])
    y, present = module(torch.from_numpy(x), plan, lambda rotated: rotated, ())
    assert present == ()
    return y


def plain(module: LongformerAttention, x: Array, mask: NDArray[np.int64], window: int, count: int) -> Array:
    """All scores of both kinds, the local ones under the mask, then the rows of the global tokens replaced."""
    n = x.shape[1]
    is_global = np.zeros(mask.shape, bool)
    for row, real in enumerate(mask):
        is_global[row, np.flatnonzero(real)[:count]] = True
    near = abs(np.arange(n)[:, None] - np.arange(n)) <= window // 2
    real = mask[:, None, None, :] > 0
    allowed = real & (near | is_global[:, None, None, :]) | np.eye(n, dtype=bool)
    names = ("q", "k", "v", "q_global", "k_global", "v_global")
    q, k, v, *globally = (split(linear(x, getattr(module, name)), HEAD_DIM) for name in names)
    y = attention(q, k, v, allowed)
    g = attention(*globally, np.broadcast_to(real, (len(x), 1, n, n)))
    return linear(merge(np.where(is_global[:, None, :, None], g, y)), module.o)


@pytest.mark.parametrize("global_tokens", [1, 3])
@pytest.mark.parametrize("window", [2, 8, 64])
def test_every_length_is_attention_under_the_mask(window: int, global_tokens: int) -> None:
    """From one token to beyond three windows; rows padded on the right, on the left, and in the middle."""
    module = layer(window, global_tokens)
    lengths = range(1, 3 * window + 3) if window < 64 else (1, 2, 31, 32, 33, 64, 65, 131, 200)
    for n in lengths:
        x = np.random.default_rng(n).standard_normal((4, n, HEADS * HEAD_DIM))
        mask = np.ones((4, n), np.int64)
        mask[1, max(1, n - 4) :] = 0
        mask[2, : min(4, n - 1)] = 0
        mask[3, 1 : max(1, n - 3)] = 0
        y = ours(module, x, mask)
        assert y.isfinite().all()
        expected = plain(module, x, mask, window, global_tokens)
        assert distance(y[torch.from_numpy(mask) > 0], expected[mask > 0]) < 1e-12, n


def test_what_is_outside_does_not_matter_and_what_is_global_does() -> None:
    """Row by row, bit by bit: token 20 is moved by 16 … 24 and the first, and moves them and the first."""
    module, n = layer(WINDOW, 1), 40
    x, mask = np.random.default_rng(0).standard_normal((1, n, HEADS * HEAD_DIM)), np.ones((1, n), np.int64)
    other = x.copy()
    other[0, 20] += 1
    moved = (ours(module, x, mask) != ours(module, other, mask)).any(-1)[0]
    assert moved.nonzero().flatten().tolist() == [0, *range(16, 25)]


def test_a_window_off_by_one_is_seen() -> None:
    module, n = layer(WINDOW, 1), 40
    x, mask = np.random.default_rng(0).standard_normal((1, n, HEADS * HEAD_DIM)), np.ones((1, n), np.int64)
    for window, count in ((WINDOW - 2, 1), (WINDOW + 2, 1), (WINDOW, 2)):
        assert distance(ours(module, x, mask), plain(module, x, mask, window, count)) > 1e-3


def test_parameters_are_the_published_ones() -> None:
    assert parameters(BASE) == 148_659_456
    sizes = {"vocab_size": 50_265, "max_position_embeddings": 4098, "type_vocab_size": 1}
    with torch.device("meta"):
        assert LongformerModel(LongformerConfig(**sizes)).num_parameters() == 148_659_456


@pytest.mark.parametrize(("window", "global_tokens"), [(8, 1), (64, 3)])
@pytest.mark.parametrize("n", [1, 4, 5, 31, 33, 200])
def test_operations_are_those_that_torch_counts(window: int, global_tokens: int, n: int) -> None:
    built = config(window, global_tokens)
    assert built.mixers[0].flops(built, n, n) == counted(call(built), n)


@pytest.mark.parametrize("half", [1, 4, 32])
def test_blocks_hold_all_that_a_query_sees(half: int) -> None:
    for n in range(1, 6 * half + 3):
        blocks, block, context = block_sizes(n, half)
        assert block <= half
        assert (blocks - 1) * block < n <= blocks * block
        for first in range(0, blocks * block, block):
            assert first - context <= max(0, first - half)
            assert first + block + context >= min(n, first + block + half)


def test_the_graph_is_the_module(exported: Exported) -> None:
    artifact = exported("longformer-base", "forward")
    graph, module, declared = Float64Graph(artifact.model_path), artifact.module(), artifact.signature()
    for n in (1, 7, 8, 9, 33):  # half a window is 8 at this size
        for batch, padding in ((1, "none"), (3, "left"), (3, "right")):
            feeds = declared.feeds({"batch": batch, "sequence": n}, seed=n, padding=padding)  # type: ignore[arg-type]
            found = graph.run(feeds)
            for output, truth in outputs64(module, feeds).items():
                assert graph_distance(found[output], truth) <= 1e-9, (n, batch, padding)


def test_what_no_longformer_can_be_is_refused() -> None:
    for window in (0, 1, 7, -2):
        with pytest.raises(ConfigError, match=f"window {window} "):
            config(window, 1)
    with pytest.raises(ConfigError, match="global_tokens 0 is below 1"):
        config(8, 0)
    with pytest.raises(ConfigError, match="cannot mix a decoder"):
        replace(config(8, 1), topology="decoder", pooler=False)
    with pytest.raises(ConfigError, match="Rope is not"):
        replace(config(8, 1), position=Rope())


@pytest.mark.parametrize("kind", [LongformerModel, LongformerForMaskedLM])
def test_a_checkpoint_of_theirs_is_read(kind: type[PreTrainedModel], tmp_path: Path) -> None:
    """With a pooler, and with a language-model head in its place."""
    hf = randomise(kind(theirs().config)).float()
    hf.save_pretrained(tmp_path)
    config, model = load(tmp_path)
    ids = 2 + tokens((2, 21), 35)
    first = torch.zeros_like(ids)
    first[:, 0] = 1
    states, *pooled = phase_module(config, "forward", model=model)(ids, torch.ones_like(ids), torch.zeros_like(ids))
    assert len(pooled) == (kind is LongformerModel)
    with torch.no_grad():
        expected = hf.base_model(input_ids=ids, global_attention_mask=first).last_hidden_state
    torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-4)


def test_a_window_a_layer_is_read_and_a_wrong_number_of_them_refused() -> None:
    read = families()["longformer"].config
    plain = LongformerConfig(num_hidden_layers=2, attention_window=[4, 8]).to_dict()
    assert [mixer.window for mixer in read(plain).mixers] == [4, 8]  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="attention_window has 3 entries for 2 layers"):
        read({**plain, "attention_window": [4, 8, 4]})
