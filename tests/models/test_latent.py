"""Latent attention against transformers' DeepSeek-V2, and against expanded keys and values in NumPy."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM, DynamicCache

from isorun.bench.truth import distance as graph_distance
from isorun.export.outputs import outputs64
from isorun.models.attention import Softmax
from isorun.models.checkpoints import families, load
from isorun.models.config import ConfigError
from isorun.models.cost import cache_bytes, flops, parameters
from isorun.models.latent import Latent, LatentAttention
from isorun.models.phases import phase_module
from isorun.models.presets import PRESETS
from isorun.models.transformer import build
from isorun.runtimes.reference import Float64Graph

from ..conftest import Exported
from .plain import array, attention, causal, distance, float32, frequencies, left_padded, linear, merge, randomise
from .scaling import counted as counted_operations
from .theirs import EPS, EQUAL, Float64, counted, tokens, twins

BASE = PRESETS["deepseek-v2-lite"]
PLAIN, TURNING, VALUE, RANK, HEADS = 10, 6, 8, 14, 5
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 500.0}


def deepseek(**options: Any) -> DeepseekV2ForCausalLM:
    sizes = {"hidden_size": 40, "num_hidden_layers": 3, "num_attention_heads": HEADS, "intermediate_size": 50}
    parts = {"qk_nope_head_dim": PLAIN, "qk_rope_head_dim": TURNING, "v_head_dim": VALUE, "kv_lora_rank": RANK}
    experts = {"n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2, "moe_intermediate_size": 12}
    rest = {"vocab_size": 37, "first_k_dense_replace": 1, "rms_norm_eps": EPS, "q_lora_rank": None}
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}  # grouped_mm has no float64
    hf = DeepseekV2ForCausalLM(DeepseekV2Config(**{**sizes, **parts, **experts, **rest, **rope, **eager, **options}))
    given = hf.config.rope_parameters
    if given["rope_type"] == "default":  # theirs are computed in float32, an ulp or two off
        hf.model.rotary_emb.inv_freq = torch.from_numpy(float32(frequencies(TURNING, 500.0)))
    return hf


def yarn(weight: float, all_dim: float) -> DeepseekV2ForCausalLM:
    """YaRN with the two weights of DeepSeek-V2, whose constants a graph keeps in float32: theirs are rounded alike."""
    hf = deepseek(rope_parameters={**YARN, "mscale": weight, "mscale_all_dim": all_dim}, max_position_embeddings=32)
    config = families()["deepseek_v2"].config(hf.config.to_dict())
    table = build(config).stack.position.frequencies
    theirs = hf.model.rotary_emb
    torch.testing.assert_close(theirs.inv_freq, table, rtol=2**-20, atol=0)
    root = 0.1 * all_dim * log(4.0) + 1
    assert theirs.attention_scaling == pytest.approx((0.1 * weight * log(4.0) + 1) / root)
    assert hf.model.layers[0].self_attn.scaling == pytest.approx(root**2 * (PLAIN + TURNING) ** -0.5)
    theirs.inv_freq, theirs.attention_scaling = table.double(), float(np.float32(theirs.attention_scaling))
    for layer in hf.model.layers:
        layer.self_attn.scaling = float(np.float32(root**2)) * (PLAIN + TURNING) ** -0.5
    return hf


CASES: dict[str, Callable[[], DeepseekV2ForCausalLM]] = {
    "lite": deepseek,
    "queries compressed": lambda: deepseek(q_lora_rank=9),
    "all layers with experts, biases, tied": lambda: deepseek(
        first_k_dense_replace=0, attention_bias=True, q_lora_rank=9, tie_word_embeddings=True
    ),
    "dense": lambda: deepseek(first_k_dense_replace=3, v_head_dim=3),
    "yarn": lambda: yarn(0.707, 0.707),
    "yarn, growing in both places": lambda: yarn(1.0, 0.5),
}


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(name: str) -> None:
    hf, config, model = twins(CASES[name]())
    for lengths in ([17, 12, 1], [1, 1, 1]):
        mask = torch.from_numpy(left_padded(lengths))
        ids, positions = tokens(tuple(mask.shape)), counted(mask)
        with torch.no_grad(), Float64():
            expected = hf(input_ids=ids, attention_mask=mask, position_ids=positions).logits
        (logits,) = phase_module(config, "forward", model=model)(ids, mask, positions)
        assert distance(logits[mask > 0], expected[mask > 0]) < EQUAL


@pytest.mark.parametrize("name", CASES)
def test_cached_steps_are_those_of_transformers(name: str) -> None:
    """Seven tokens, then 1, 1, 2 and 3 more; the cache is r + e numbers a token for all heads together."""
    hf, config, model = twins(CASES[name]())
    step = phase_module(config, "step", model=model)
    mask = torch.from_numpy(left_padded([14, 9, 8]))
    ids, positions = tokens(tuple(mask.shape)), counted(mask)
    theirs = DynamicCache(config=hf.config)  # filled in place; its keyword was renamed within version 5
    keyword = "cache" if "cache" in inspect.signature(hf.forward).parameters else "past_key_values"
    past: list[Tensor] = [torch.zeros(3, 0, size, dtype=torch.float64) for size in (RANK, TURNING)] * 3
    begin = 0
    for count in (7, 1, 1, 2, 3):
        end = begin + count
        new = ids[:, begin:end], mask[:, :end], positions[:, begin:end]
        with torch.no_grad(), Float64():
            expected = hf(input_ids=new[0], attention_mask=new[1], position_ids=new[2], **{keyword: theirs}).logits
        logits, *past = step(*new, *past)
        real = mask[:, begin:end] > 0
        assert distance(logits[real], expected[real]) < EQUAL
        begin = end
    assert [tuple(tensor.shape) for tensor in past] == [(3, 14, RANK), (3, 14, TURNING)] * 3


@pytest.mark.parametrize("past", [0, 1, 9])
def test_absorbed_is_expanded(past: int) -> None:
    """As the paper writes it, equations 9 to 19: keys and values of every head, in NumPy; without a rotation."""
    mixer = Latent(rank=RANK, plain=PLAIN, value=VALUE)
    config = replace(BASE.at("tiny").scaled(dim=40, heads=HEADS), mixer=mixer, head_size=TURNING)
    module = randomise(mixer.build(config, causal=True))
    assert isinstance(module, LatentAttention)
    rng, mask = np.random.default_rng(0), left_padded([past + 11, past + 8, past + 1])
    x = rng.standard_normal((3, 11, 40))
    kept = rng.standard_normal((3, past, RANK)), rng.standard_normal((3, past, TURNING))
    plan = module.plan(torch.from_numpy(mask), 11)
    y, present = module(torch.from_numpy(x), plan, lambda rotated: rotated, tuple(map(torch.from_numpy, kept)))

    down = linear(x, module.down)
    c = down[..., :RANK] / np.sqrt((down[..., :RANK] ** 2).mean(-1, keepdims=True) + 1e-6) * array(module.norm.weight)
    c, e = np.concatenate((kept[0], c), 1), np.concatenate((kept[1], down[..., RANK:]), 1)
    expanded = linear(c, module.up).reshape(3, past + 11, HEADS, PLAIN + VALUE).swapaxes(1, 2)
    k = np.concatenate((expanded[..., :PLAIN], np.repeat(e[:, None], HEADS, 1)), -1)
    q = linear(x, module.q).reshape(3, 11, HEADS, PLAIN + TURNING).swapaxes(1, 2)
    expected = linear(merge(attention(q, k, expanded[..., PLAIN:], causal(mask, 11))), module.o)
    assert distance(y, expected) < 1e-12
    assert [distance(a, b) < 1e-12 for a, b in zip(present, (c, e), strict=True)] == [True, True]


def test_parameters_are_the_published_ones() -> None:
    """15.7 B in the paper; to the last of them as transformers counts."""
    lite = {"hidden_size": 2048, "intermediate_size": 10_944, "num_hidden_layers": 27, "num_attention_heads": 16}
    experts = {"moe_intermediate_size": 1408, "num_experts_per_tok": 6, "first_k_dense_replace": 1}
    with torch.device("meta"):
        theirs = DeepseekV2ForCausalLM(DeepseekV2Config(**lite, **experts, q_lora_rank=None)).num_parameters()
    assert parameters(BASE) == theirs == 15_706_484_224


def test_the_cache_is_a_seventh_of_that_of_its_heads() -> None:
    """512 + 64 numbers a token and layer, where 16 heads of 128 would keep 4096."""
    assert cache_bytes(BASE, batch=1, tokens=1, bytes_per_number=1) == 27 * 576
    heads = replace(BASE, mixer=Softmax(), head_size=128)
    assert cache_bytes(heads, batch=1, tokens=1, bytes_per_number=1) == 27 * 4096


@pytest.mark.parametrize("q_rank", [None, 9])
@pytest.mark.parametrize(("n", "past"), [(1, 0), (1, 20), (7, 5), (30, 0)])
def test_operations_are_those_that_torch_counts(q_rank: int | None, n: int, past: int) -> None:
    tiny = BASE.at("tiny")
    config = replace(tiny, mixer=replace(tiny.mixers[0], q_rank=q_rank))  # type: ignore[type-var]
    module = phase_module(config, "step")
    sizes = {"batch": 3, "sequence": n, "past": past}
    feeds = [torch.from_numpy(feed) for feed in module.signature.feeds(sizes).values()]
    assert flops(config, "step", sizes) == counted_operations(lambda _: module(*feeds), n)


def test_the_graph_is_the_module(exported: Exported) -> None:
    artifact = exported("deepseek-v2-lite", "step")
    graph, module, declared = Float64Graph(artifact.model_path), artifact.module(), artifact.signature()
    for batch, n, past in ((1, 1, 0), (3, 1, 20), (3, 2, 1), (1, 7, 20), (3, 33, 0)):
        feeds = declared.feeds({"batch": batch, "sequence": n, "past": past}, seed=n, padding="left")
        found = graph.run(feeds)
        for output, truth in outputs64(module, feeds).items():
            assert graph_distance(found[output], truth) <= 1e-9, (batch, n, past, output)


def test_a_checkpoint_of_theirs_is_read(tmp_path: Any) -> None:
    hf = deepseek(q_lora_rank=9)
    randomise(hf).float().save_pretrained(tmp_path)
    config, model = load(tmp_path)
    hf.model.rotary_emb.inv_freq = hf.model.rotary_emb.inv_freq.float()
    ids = tokens((2, 9))
    mask, positions = torch.ones_like(ids), torch.arange(9).expand(2, 9)
    (logits,) = phase_module(config, "forward", model=model)(ids, mask, positions)
    with torch.no_grad():
        torch.testing.assert_close(logits, hf(input_ids=ids).logits, rtol=1e-4, atol=1e-4)


REFUSED = {"topk_method": "group_limited_greedy", "routed_scaling_factor": 16.0, "norm_topk_prob": True}


@pytest.mark.parametrize("option", REFUSED)
def test_routing_that_is_not_supported_is_refused(option: str) -> None:
    config = DeepseekV2Config(**{option: REFUSED[option]}).to_dict()
    with pytest.raises(ConfigError, match=f"{option} {REFUSED[option]} is not supported"):
        families()["deepseek_v2"].config(config)


@pytest.mark.parametrize("field", ["rank", "plain", "value", "q_rank"])
def test_a_part_without_size_is_refused(field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field} 0 of latent attention is below 1"):
        replace(BASE, mixer=Latent(**{"rank": 4, "plain": 4, "value": 4, field: 0}))
