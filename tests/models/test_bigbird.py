"""BigBird against transformers, and against attention under its mask in NumPy; its random blocks; what it costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import BigBirdConfig, BigBirdForPreTraining, BigBirdModel, PreTrainedModel
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

from isorun.bench.truth import distance as graph_distance
from isorun.export.outputs import outputs64
from isorun.models.attention import Softmax
from isorun.models.bigbird import BigBird, BigBirdAttention, random_blocks
from isorun.models.checkpoints import families, load
from isorun.models.config import ConfigError, ModelConfig
from isorun.models.cost import parameters
from isorun.models.phases import phase_module
from isorun.models.position import Rope
from isorun.models.presets import PRESETS
from isorun.runtimes.reference import Float64Graph

from ..conftest import Exported
from .plain import Array, attention, distance, left_padded, linear, merge, randomise, split
from .scaling import call, counted
from .theirs import Float64, tokens, twins

HEADS, HEAD_DIM, BLOCK = 6, 4, 4
BASE = PRESETS["bigbird-base"]
CONFIG = BASE.at("tiny").scaled(dim=HEADS * HEAD_DIM, heads=HEADS, context=1024)


def drawn(seed: int, head: int, i: int, blocks: int, count: int) -> list[int]:
    """The random blocks of block i in plain integers."""
    candidates = [j for j in range(1, blocks - 1) if abs(i - j) > 1]
    chosen = []
    for run in range(count):
        begin, end = run * len(candidates) // count, (run + 1) * len(candidates) // count
        if begin < end:
            x = seed + 1
            for key in (head, i, run, blocks):
                x = (x * x + 48_271 * (key + 1)) % (2**31 - 1)
            chosen.append(candidates[begin + x % (end - begin)])
    return chosen


def seen(seed: int, n: int, block: int, count: int) -> NDArray[np.bool_]:
    """Which tokens each token sees, by head: (H, n, n)."""
    blocks = -(-n // block)
    of_blocks = np.zeros((HEADS, blocks, blocks), bool)
    of_blocks[:, [0, -1]] = of_blocks[:, :, [0, -1]] = True
    for head in range(HEADS):
        for i in range(blocks):
            of_blocks[head, i, max(0, i - 1) : i + 2] = True
            of_blocks[head, i, drawn(seed, head, i, blocks, count)] = True
    where = np.arange(n) // block
    return of_blocks[:, where[:, None], where]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 6, 7, 8, 9, 16, 64])
def test_random_blocks_are_those_of_plain_integers(blocks: int, count: int) -> None:
    for seed in (0, 11):
        chosen, there = random_blocks(blocks, HEADS, count, seed)
        for head in range(HEADS):
            for i in range(blocks):
                expected = drawn(seed, head, i, blocks, count)
                assert chosen[head, i][there[i]].tolist() == expected
                # None twice, none that is seen anyway, and as many as there are.
                others = set(range(blocks)) - {0, blocks - 1, i - 1, i, i + 1}
                assert set(expected) <= others
                assert len(set(expected)) == len(expected) == min(count, len(others))


def test_random_blocks_are_spread_and_differ() -> None:
    """Of 59 candidates each is drawn about equally often over heads and seeds: 5 standard deviations at most."""
    rows = [random_blocks(64, 12, 3, seed)[0][:, 32] for seed in range(200)]
    counts = Counter(torch.stack(rows).flatten().tolist())
    assert set(counts) == set(range(1, 63)) - {31, 32, 33}
    expected = 200 * 12 * 3 / 59
    assert all(abs(found - expected) < 5 * expected**0.5 for found in counts.values())
    assert len({tuple(head.tolist()) for row in rows for head in row}) > 2000  # of 2400 draws


def theirs(count: int) -> BigBirdModel:
    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": HEADS, "intermediate_size": 100}
    options = {"vocab_size": 37, "max_position_embeddings": 128, "layer_norm_eps": 0.003}
    return BigBirdModel(BigBirdConfig(**sizes, **options, block_size=BLOCK, num_random_blocks=count))


@pytest.mark.parametrize(
    ("count", "lengths"), [(1, [31, 20, 6]), (2, [40, 39, 1]), (3, [49, 48, 20]), (3, [127, 8, 3])]
)
def test_states_are_those_of_transformers(count: int, lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """With our blocks in place of theirs, which are block 0 each time in eval mode."""

    def ours(self: Any, from_seq_length: int, *args: Any, **options: Any) -> NDArray[np.int64]:
        blocks = from_seq_length // BLOCK
        rows = [[drawn(self.seed, head, i, blocks, count) for i in range(1, blocks - 1)] for head in range(HEADS)]
        return np.array(rows)

    monkeypatch.setattr(BigBirdBlockSparseAttention, "_bigbird_block_rand_mask_with_head", ours)
    hf, config, model = twins(theirs(count))
    mask = torch.from_numpy(left_padded(lengths)).flip(1)
    ids, types = tokens(tuple(mask.shape)), tokens(tuple(mask.shape), 2)
    with torch.no_grad(), Float64():
        expected = hf(input_ids=ids, attention_mask=mask, token_type_ids=types)
    assert hf.attention_type == "block_sparse"
    states, pooled = phase_module(config, "forward", model=model)(ids, mask, types)
    assert distance(states[mask > 0], expected.last_hidden_state[mask > 0]) < 1e-10
    assert distance(pooled, expected.pooler_output) < 1e-10


@pytest.mark.parametrize("lengths", [[1, 1, 1], [3, 2, 1], [13, 8, 5], [28, 27, 26]], ids=str)
def test_states_of_transformers_at_short_lengths(lengths: list[int]) -> None:
    """Up to 4 + r blocks all is seen, as in theirs up to 5 + 2r."""
    hf, config, model = twins(theirs(3))
    mask = torch.from_numpy(left_padded(lengths)).flip(1)
    ids, types = tokens(tuple(mask.shape)), tokens(tuple(mask.shape), 2)
    with torch.no_grad(), Float64():
        expected = hf(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
    assert hf.attention_type == "original_full"
    states, _ = phase_module(config, "forward", model=model)(ids, mask, types)
    assert distance(states[mask > 0], expected[mask > 0]) < 1e-10


def config(block: int, count: int, seed: int = 0) -> ModelConfig:
    return replace(CONFIG, mixer=BigBird(block=block, random=count, seed=seed))


@cache
def layer(block: int, count: int, seed: int) -> BigBirdAttention:
    built = config(block, count, seed)
    module = randomise(built.mixers[0].build(built, causal=False))
    assert isinstance(module, BigBirdAttention)
    return module.requires_grad_(False)


def ours(module: BigBirdAttention, x: Array, mask: NDArray[np.int64]) -> Tensor:
    plan = module.plan(torch.from_numpy(mask), x.shape[1])
    y, present = module(torch.from_numpy(x), plan, lambda rotated: rotated, ())
    assert present == ()
    return y


def plain(module: BigBirdAttention, x: Array, mask: NDArray[np.int64], pattern: NDArray[np.bool_]) -> Array:
    """All scores, under the mask."""
    q, k, v = (split(linear(x, part), HEAD_DIM) for part in (module.q, module.k, module.v))
    allowed = (mask[:, None, None, :] > 0) & pattern | np.eye(x.shape[1], dtype=bool)
    return linear(merge(attention(q, k, v, allowed)), module.o)


@pytest.mark.parametrize(("block", "count", "seed"), [(1, 1, 0), (4, 3, 0), (4, 2, 5), (16, 3, 11)])
def test_every_length_is_attention_under_the_mask(block: int, count: int, seed: int) -> None:
    """From one token to several blocks beyond 5 + r; rows padded on the right, on the left, and in the middle."""
    module = layer(block, count, seed)
    for n in range(1, 14 * block + 3) if block < 16 else (1, 15, 16, 17, 33, 129, 144, 145, 200):
        x = np.random.default_rng(n).standard_normal((4, n, HEADS * HEAD_DIM))
        mask = np.ones((4, n), np.int64)
        mask[1, max(1, n - 6) :] = 0
        mask[2, : min(6, n - 1)] = 0
        mask[3, 1 : max(1, n - 7)] = 0
        y = ours(module, x, mask)
        assert y.isfinite().all()
        expected = plain(module, x, mask, seen(seed, n, block, count))
        assert distance(y[torch.from_numpy(mask) > 0], expected[mask > 0]) < 1e-12, n


def test_another_pattern_is_seen() -> None:
    module, n = layer(BLOCK, 3, 0), 70
    x, mask = np.random.default_rng(0).standard_normal((1, n, HEADS * HEAD_DIM)), np.ones((1, n), np.int64)
    for pattern in (seen(1, n, BLOCK, 3), seen(0, n, BLOCK, 2), seen(0, n, BLOCK + 1, 3), np.ones((1, n, n), bool)):
        assert distance(ours(module, x, mask), plain(module, x, mask, pattern)) > 1e-3


def test_parameters_are_those_of_transformers_at_the_sizes_of_the_card() -> None:
    """Neither paper nor card gives a count."""
    with torch.device("meta"):
        assert parameters(BASE) == BigBirdModel(BigBirdConfig()).num_parameters() == 127_468_800


@pytest.mark.parametrize(("block", "count"), [(4, 3), (16, 1)])
@pytest.mark.parametrize("n", [1, 4, 5, 31, 33, 200])
def test_operations_are_those_that_torch_counts(block: int, count: int, n: int) -> None:
    built = config(block, count)
    assert built.mixers[0].flops(built, n, n) == counted(call(built), n)


def test_the_graph_is_the_module(exported: Exported) -> None:
    """The same random blocks in the graph at every length: at this size a block is 2 tokens."""
    artifact = exported("bigbird-base", "forward")
    graph, module, declared = Float64Graph(artifact.model_path), artifact.module(), artifact.signature()
    for n in (1, 2, 3, 7, 33, 100):
        for batch, padding in ((1, "none"), (3, "left"), (3, "right")):
            feeds = declared.feeds({"batch": batch, "sequence": n}, seed=n, padding=padding)  # type: ignore[arg-type]
            found = graph.run(feeds)
            for output, truth in outputs64(module, feeds).items():
                assert graph_distance(found[output], truth) <= 1e-9, (n, batch, padding)


@pytest.mark.parametrize("kind", [BigBirdModel, BigBirdForPreTraining])
def test_a_checkpoint_of_theirs_is_read(kind: type[PreTrainedModel], tmp_path: Path) -> None:
    """Without and with the heads of pre-training, at a length where all is seen."""
    hf = randomise(kind(theirs(3).config)).float()
    hf.save_pretrained(tmp_path)
    config, model = load(tmp_path)
    ids = tokens((2, 21))
    states, pooled = phase_module(config, "forward", model=model)(ids, torch.ones_like(ids), torch.zeros_like(ids))
    with torch.no_grad():
        expected = hf.base_model(input_ids=ids)
    torch.testing.assert_close(states, expected.last_hidden_state, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(pooled, expected.pooler_output, rtol=1e-4, atol=1e-4)


def test_layers_draw_different_blocks() -> None:
    assert [mixer.seed for mixer in BASE.mixers] == list(range(12))  # type: ignore[attr-defined]


def test_what_no_bigbird_can_be_is_refused() -> None:
    for field in ("block", "random"):
        with pytest.raises(ConfigError, match=f"{field} 0 is below 1"):
            replace(CONFIG, mixer=BigBird(**{"block": 4, "random": 3, field: 0}))
    with pytest.raises(ConfigError, match="seed -1 is below 0"):
        config(4, 3, -1)
    with pytest.raises(ConfigError, match="cannot mix a decoder"):
        replace(config(4, 3), topology="decoder", pooler=False)
    with pytest.raises(ConfigError, match="Rope is not"):
        replace(config(4, 3), position=Rope())


def test_options_that_change_the_function_are_refused_and_full_attention_is_read() -> None:
    read = families()["big_bird"].config
    for option, value in {"use_bias": False, "rescale_embeddings": True, "is_decoder": True}.items():
        with pytest.raises(ConfigError, match=f"{option} {value}"):
            read(BigBirdConfig(**{option: value}).to_dict())
    assert read(BigBirdConfig(attention_type="original_full").to_dict()).mixer == Softmax()
