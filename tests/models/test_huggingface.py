"""Encoders and decoders against transformers, weights copied by name, both wholly in float64."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel, DynamicCache, GPT2Config, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from isorun.models.checkpoints import families
from isorun.models.config import ConfigError
from isorun.models.phases import phase_module
from isorun.models.position import frequencies as ours_frequencies

from .plain import distance, left_padded
from .theirs import BASE, DECODERS, DIM, EPS, EQUAL, HEADS, Float64, counted, tokens, twins


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("lengths", [[17, 12, 1], [3, 3, 2], [1, 1, 1]], ids=str)
def test_decoder_logits(name: str, lengths: list[int]) -> None:
    hf, config, model = twins(DECODERS[name]())
    mask = torch.from_numpy(left_padded(lengths))
    ids, positions = tokens(tuple(mask.shape)), counted(mask)
    with torch.no_grad(), Float64():
        expected = hf(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    (logits,) = phase_module(config, "forward", model=model)(ids, mask, positions)
    assert distance(logits[mask > 0], expected[mask > 0]) < EQUAL


# A window of one is left out: their cache keeps keys[-window + 1 :], which is then all of them. Their GPT-1 has none.
@pytest.mark.parametrize("name", [name for name in DECODERS if name != "mistral, window of one" and "gpt1" not in name])
def test_cached_decoding(name: str) -> None:
    """Seven tokens, then 1, 1, 2, 1, 3 and 1 more, to beyond three windows; rows of 16, 11 and 10 in the end."""
    hf, config, model = twins(DECODERS[name]())
    step = phase_module(config, "step", model=model)
    mask = torch.from_numpy(left_padded([16, 11, 10]))
    ids, positions = tokens(tuple(mask.shape)), counted(mask)
    theirs = DynamicCache(config=hf.config)  # filled in place; its keyword was renamed within version 5
    keyword = "cache" if "cache" in inspect.signature(hf.forward).parameters else "past_key_values"
    empty = {"batch": 3, "past": 0, "sequence": 0}
    caches = [spec.resolve(empty) for spec in step.signature.inputs if spec.name.startswith("past_key_values")]
    past: list[Tensor] = [torch.zeros(shape, dtype=torch.float64) for shape in caches]
    begin = 0
    for count in (7, 1, 1, 2, 1, 3, 1):
        end = begin + count
        new = ids[:, begin:end], mask[:, :end], positions[:, begin:end]
        with torch.no_grad(), Float64():
            expected = hf(input_ids=new[0], attention_mask=new[1], position_ids=new[2], **{keyword: theirs}).logits
        logits, *past = step(*new, *past)
        real = mask[:, begin:end] > 0
        assert distance(logits[real], expected[real]) < EQUAL
        begin = end
    assert begin == 16


@pytest.mark.parametrize("name", [name for name in DECODERS if "gpt1" in name])
def test_decoding_where_theirs_has_no_cache(name: str) -> None:
    """The same steps, each against their pass over all tokens so far."""
    hf, config, model = twins(DECODERS[name]())
    step = phase_module(config, "step", model=model)
    mask = torch.from_numpy(left_padded([12, 7, 6]))
    ids, positions = tokens(tuple(mask.shape)), counted(mask)
    past: list[Tensor] = [torch.zeros(3, HEADS, 0, DIM // HEADS, dtype=torch.float64)] * (2 * config.layers)
    for begin, end in ((0, 7), (7, 8), (8, 10), (10, 12)):
        with torch.no_grad(), Float64():
            whole = hf(input_ids=ids[:, :end], attention_mask=mask[:, :end], position_ids=positions[:, :end]).logits
        logits, *past = step(ids[:, begin:end], mask[:, :end], positions[:, begin:end], *past)
        real = mask[:, begin:end] > 0
        assert distance(logits[real], whole[:, begin:][real]) < EQUAL


@pytest.mark.parametrize("lengths", [[13, 8, 1], [2, 1, 2], [1, 1, 1]], ids=str)
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_bert_states(lengths: list[int], activation: str) -> None:
    sizes = {"hidden_size": DIM, "num_hidden_layers": 3, "num_attention_heads": HEADS, "intermediate_size": 100}
    options = {"vocab_size": 37, "max_position_embeddings": 32, "hidden_act": activation, "layer_norm_eps": EPS}
    hf, config, model = twins(BertModel(BertConfig(**sizes, **options, attn_implementation="eager")))
    mask = torch.from_numpy(left_padded(lengths)).flip(1)
    ids, types = tokens(tuple(mask.shape)), tokens(tuple(mask.shape), 2)
    with torch.no_grad(), Float64():
        expected = hf(input_ids=ids, attention_mask=mask, token_type_ids=types)
    states, pooled = phase_module(config, "forward", model=model)(ids, mask, types)
    assert distance(states[mask > 0], expected.last_hidden_state[mask > 0]) < EQUAL
    assert distance(pooled, expected.pooler_output) < EQUAL


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_frequencies_are_theirs_up_to_their_rounding(head_dim: int, base: float) -> None:
    rope = {"rope_type": "default", "rope_theta": base}
    config = LlamaConfig(hidden_size=2 * head_dim, num_attention_heads=2, rope_parameters=rope, vocab_size=3)
    theirs = LlamaRotaryEmbedding(config).inv_freq
    torch.testing.assert_close(ours_frequencies(head_dim, base), theirs, rtol=2**-22, atol=0)


REFUSED = {
    "scaled rotary": (
        "llama",
        {"rope_parameters": {"rope_type": "proportional", "rope_theta": BASE}},
        "proportional",
    ),
    "unscaled scores": ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights False"),
    "scores by layer": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx True"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_option_that_changes_the_function_is_refused(case: str) -> None:
    family, options, value = REFUSED[case]
    config = {"llama": LlamaConfig, "gpt2": GPT2Config}[family](**options).to_dict()
    with pytest.raises(ConfigError, match=value):
        families()[family].config(config)
