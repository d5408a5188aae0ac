"""Encoders and decoders against transformers, weights copied by name, both wholly in float64."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import (
    BertConfig,
    BertModel,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from isorun.models.checkpoints import copy, families
from isorun.models.config import ConfigError, ModelConfig
from isorun.models.phases import phase_module
from isorun.models.position import frequencies as ours_frequencies
from isorun.models.transformer import build

from .plain import distance, float32, frequencies, left_padded, randomise

HEADS, GROUPS, DIM, BASE, WINDOW = 6, 2, 48, 500.0, 5
EPS = 0.003  # none of the defaults
EQUAL = 1e-10


class Float64(TorchFunctionMode):
    """Hugging Face's own code in float64: where it asks for float32 (RMSNorm, softmax, angles), it gets float64.

    Without it their Llama in double is right to 1e-6 only, and NaN with padding: a mask of float64's least number is
    -inf in a float32 softmax.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        def wide(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        func = torch.Tensor.double if func is torch.Tensor.float else func
        return func(*map(wide, args), **{key: wide(value) for key, value in (kwargs or {}).items()})


def gpt2(**options: Any) -> PreTrainedModel:
    sizes = {"n_embd": DIM, "n_layer": 3, "n_head": HEADS, "n_positions": 32, "layer_norm_epsilon": EPS}
    ids = {"vocab_size": 37, "bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**sizes, **ids, attn_implementation="eager", **options))


def llama_like(model: type, config: type, **options: Any) -> PreTrainedModel:
    sizes = {"hidden_size": DIM, "num_hidden_layers": 3, "intermediate_size": 50, "vocab_size": 37, "rms_norm_eps": EPS}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "max_position_embeddings": 32}
    rope = {"rope_type": "default", "rope_theta": BASE}
    built: PreTrainedModel = model(
        config(**{**sizes, **heads, "rope_parameters": rope, "attn_implementation": "eager", **options})
    )
    # Theirs computes the frequencies in float32, which leaves errors of an ulp or two; ours rounds the exact values.
    built.model.rotary_emb.inv_freq = torch.from_numpy(float32(frequencies(DIM // HEADS, BASE)))
    return built


def llama(**options: Any) -> PreTrainedModel:
    return llama_like(LlamaForCausalLM, LlamaConfig, **options)


def mistral(**options: Any) -> PreTrainedModel:
    return llama_like(MistralForCausalLM, MistralConfig, **{"sliding_window": WINDOW, **options})


DECODERS: dict[str, Callable[[], PreTrainedModel]] = {
    "gpt2": gpt2,
    "gpt2, untied": lambda: gpt2(tie_word_embeddings=False),
    "gpt2, narrow and exact GELU": lambda: gpt2(n_inner=40, activation_function="gelu"),
    "llama": llama,
    "llama, tied": lambda: llama(tie_word_embeddings=True),
    "llama, one for each head": lambda: llama(num_key_value_heads=HEADS),
    "llama, one for all heads": lambda: llama(num_key_value_heads=1),
    "llama, biases": lambda: llama(attention_bias=True, mlp_bias=True),
    "mistral": mistral,
    "mistral, window of one": lambda: mistral(sliding_window=1),
    "mistral, window of two": lambda: mistral(sliding_window=2),
    "mistral, tied": lambda: mistral(tie_word_embeddings=True),
    "mistral, no window": lambda: mistral(sliding_window=None),
}


def twins(hf: PreTrainedModel) -> tuple[PreTrainedModel, ModelConfig, nn.Module]:
    """A model of theirs with new weights, and ours with the same, both in float64."""
    randomise(hf)
    family = families()[hf.config.model_type]
    config = family.config(hf.config.to_dict())
    ours = build(config).double()
    copy(ours, family, hf.state_dict())
    return hf, config, ours


def tokens(shape: tuple[int, int], limit: int = 37) -> Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(0, limit, shape))


def counted(mask: Tensor) -> Tensor:
    """Positions row by row: 0 at padding, then 0, 1, 2 …"""
    rows = [[0] * int((row == 0).sum()) + list(range(int(row.sum()))) for row in mask]
    return torch.tensor(rows)


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


# A window of one is left out: their cache keeps keys[-window + 1 :], which is then all of them.
@pytest.mark.parametrize("name", [name for name in DECODERS if name != "mistral, window of one"])
def test_cached_decoding(name: str) -> None:
    """Seven tokens, then 1, 1, 2, 1, 3 and 1 more, to beyond three windows; rows of 16, 11 and 10 in the end."""
    hf, config, model = twins(DECODERS[name]())
    step = phase_module(config, "step", model=model)
    mask = torch.from_numpy(left_padded([16, 11, 10]))
    ids, positions = tokens(tuple(mask.shape)), counted(mask)
    theirs = DynamicCache(config=hf.config)  # filled in place; its keyword was renamed within version 5
    keyword = "cache" if "cache" in inspect.signature(hf.forward).parameters else "past_key_values"
    empty = torch.zeros(3, config.mixer.cache(config)[0].shape[1], 0, DIM // HEADS, dtype=torch.float64)
    past: tuple[Tensor, ...] = (empty,) * (2 * config.layers)
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


@pytest.mark.parametrize("lengths", [[13, 8, 1], [2, 1, 2], [1, 1, 1]], ids=str)
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_bert_states(lengths: list[int], activation: str) -> None:
    sizes = {"hidden_size": DIM, "num_hidden_layers": 3, "num_attention_heads": HEADS, "intermediate_size": 100}
    options = {"vocab_size": 37, "max_position_embeddings": 32, "hidden_act": activation, "layer_norm_eps": EPS}
    hf, config, model = twins(BertModel(BertConfig(**sizes, **options, attn_implementation="eager")))
    mask = torch.from_numpy(left_padded(lengths)).flip(1)
    ids, types = tokens(tuple(mask.shape)), tokens(tuple(mask.shape), 2)
    with torch.no_grad(), Float64():
        expected = hf(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
    (states,) = phase_module(config, "forward", model=model)(ids, mask, types)
    assert distance(states[mask > 0], expected[mask > 0]) < EQUAL


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
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": BASE}},
        "linear",
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
