"""The families that are particular in their positions against transformers, weights copied by name, in float64."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    DynamicCache,
    EncoderDecoderCache,
    GlmConfig,
    GlmForCausalLM,
    GPTJConfig,
    GPTJForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    RoFormerConfig,
    RoFormerModel,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom import modeling_bloom

from isorun.models.checkpoints import families
from isorun.models.config import ConfigError, ModelConfig
from isorun.models.cost import parameters
from isorun.models.phases import phase_module
from isorun.models.presets import PRESETS
from isorun.models.relative import slopes

from .plain import array, distance, float32, frequencies, left_padded
from .theirs import EPS, EQUAL, Float64, counted, tokens, twins

VOCAB, LAYERS = 37, 3
IDS = {"vocab_size": VOCAB, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
EAGER = {"attn_implementation": "eager"}


def rounded(dim: int, base: float = 10_000.0) -> Tensor:
    """The exact frequencies rounded to float32, as ours are; theirs are computed in float32, an ulp or two off."""
    return torch.from_numpy(float32(frequencies(dim, base)))


def gpt_neox(heads: int = 6, **options: Any) -> PreTrainedModel:
    sizes = {"hidden_size": 96, "num_hidden_layers": LAYERS, "num_attention_heads": heads, "intermediate_size": 100}
    rest = {"max_position_embeddings": 64, "layer_norm_eps": EPS, **IDS, **EAGER, **options}
    hf = GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, **rest))
    rope = hf.config.rope_parameters
    size = int(96 // heads * rope["partial_rotary_factor"])
    hf.gpt_neox.rotary_emb.inv_freq = rounded(size, rope["rope_theta"])
    return hf


def gptj(rotary_dim: int = 8, **options: Any) -> PreTrainedModel:
    sizes = {"n_embd": 96, "n_layer": LAYERS, "n_head": 6, "rotary_dim": rotary_dim, "n_positions": 64}
    hf = GPTJForCausalLM(GPTJConfig(**sizes, layer_norm_epsilon=EPS, **IDS, **EAGER, **options))
    angles = torch.arange(64, dtype=torch.float64)[:, None] * rounded(rotary_dim)
    hf.transformer.rotary_emb.embed_positions = torch.cat((angles.sin(), angles.cos()), 1)
    return hf


def bloom(heads: int = 6, **options: Any) -> PreTrainedModel:
    sizes = {"hidden_size": 8 * heads, "n_layer": LAYERS, "n_head": heads, "layer_norm_epsilon": EPS}
    hf = BloomForCausalLM(BloomConfig(**sizes, **IDS, **EAGER, **options))
    for block in hf.transformer.h:  # theirs has √(2/π) to eight digits
        block.mlp.gelu_impl = nn.GELU("tanh")
    return hf


def glm(**options: Any) -> PreTrainedModel:
    sizes = {"hidden_size": 48, "num_hidden_layers": LAYERS, "num_attention_heads": 6, "intermediate_size": 50}
    rest = {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "rms_norm_eps": EPS}
    hf = GlmForCausalLM(GlmConfig(**sizes, **{**rest, **IDS, **EAGER, **options}))
    hf.model.rotary_emb.inv_freq = rounded(hf.config.head_dim // 2)
    return hf


def llama(kind: str, **rope: Any) -> PreTrainedModel:
    """With the frequencies that their own function gives in float64, rounded to float32 as ours are."""
    sizes = {"hidden_size": 96, "num_hidden_layers": LAYERS, "intermediate_size": 50, "num_attention_heads": 6}
    rest = {"num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": EPS, **IDS, **EAGER}
    parameters = {"rope_type": kind, "rope_theta": 500.0, **rope}
    hf = LlamaForCausalLM(LlamaConfig(**sizes, **rest, rope_parameters=parameters))
    with Float64():
        exact, temperature = ROPE_INIT_FUNCTIONS[kind](hf.config)
    assert exact.dtype == torch.float64
    hf.model.rotary_emb.inv_freq = exact.float().double()
    hf.model.rotary_emb.attention_scaling = torch.tensor(temperature).float().item()
    return hf


DECODERS: dict[str, Callable[[], PreTrainedModel]] = {
    "gpt_neox": gpt_neox,
    "gpt_neox, tied": lambda: gpt_neox(tie_word_embeddings=True),
    "gpt_neox, half of a head, other base": lambda: gpt_neox(
        heads=8, rope_parameters={"partial_rotary_factor": 0.5, "rope_theta": 300.0, "rope_type": "default"}
    ),
    "gptj": gptj,
    "gptj, the whole head": lambda: gptj(rotary_dim=16),
    "gptj, narrow": lambda: gptj(n_inner=40),
    "bloom, 6 heads": bloom,
    "bloom, 16 heads": lambda: bloom(16),
    "bloom, 1 head": lambda: bloom(1),
    "bloom, 11 heads": lambda: bloom(11),
    "bloom, untied": lambda: bloom(tie_word_embeddings=False),
    "glm": glm,
    "glm, tied, one group": lambda: glm(tie_word_embeddings=True, num_key_value_heads=1, attention_bias=False),
    "llama, linear": lambda: llama("linear", factor=4.0),
    "llama, llama3": lambda: llama(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32
    ),
    "llama, yarn": lambda: llama("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=0.5),
}  # fmt: skip


@pytest.fixture(autouse=True)
def slopes_of_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact slopes rounded to float32, as ours are; theirs come from a power in float32."""
    theirs = modeling_bloom._get_alibi_slopes

    def exact(heads: int, device: Any) -> Tensor:
        with Float64():
            return torch.from_numpy(float32(array(theirs(heads, device))))  # through NumPy: .float() is .double() here

    monkeypatch.setattr(modeling_bloom, "_get_alibi_slopes", exact)


def asked(model: PreTrainedModel, **values: Any) -> dict[str, Any]:
    """Those of the values that the model takes: not all know `position_ids`."""
    known = inspect.signature(model.forward).parameters
    return {name: value for name, value in values.items() if name in known}


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("lengths", [[33, 12, 1], [3, 3, 2], [1, 1, 1]], ids=str)
def test_decoder_logits(name: str, lengths: list[int]) -> None:
    hf, config, model = twins(DECODERS[name]())
    mask = torch.from_numpy(left_padded(lengths))
    ids, positions = tokens(tuple(mask.shape)), counted(mask)
    with torch.no_grad(), Float64():
        expected = hf(input_ids=ids, attention_mask=mask, **asked(hf, position_ids=positions)).logits
    module = phase_module(config, "forward", model=model)
    (logits,) = module(ids, mask, *([positions] if config.position.uses_ids else []))
    assert distance(logits[mask > 0], expected[mask > 0]) < EQUAL


@pytest.mark.parametrize("name", DECODERS)
def test_cached_decoding(name: str) -> None:
    """Seven tokens, then 1, 1, 2, 1, 3 and 1 more; rows of 16, 11 and 10 in the end."""
    hf, config, model = twins(DECODERS[name]())
    step = phase_module(config, "step", model=model)
    mask = torch.from_numpy(left_padded([16, 11, 10]))
    ids, positions = tokens(tuple(mask.shape)), counted(mask)
    theirs = DynamicCache(config=hf.config)
    keyword = "cache" if "cache" in inspect.signature(hf.forward).parameters else "past_key_values"
    empty = torch.zeros(3, config.mixer.cache(config)[0].shape[1], 0, config.head_dim, dtype=torch.float64)
    past: tuple[Tensor, ...] = (empty,) * (2 * config.layers)
    begin = 0
    for count in (7, 1, 1, 2, 1, 3, 1):
        end = begin + count
        where = positions[:, begin:end]
        with torch.no_grad(), Float64():
            known = asked(hf, position_ids=where, **{keyword: theirs})
            expected = hf(input_ids=ids[:, begin:end], attention_mask=mask[:, :end], use_cache=True, **known).logits
        inputs = ids[:, begin:end], mask[:, :end], *([where] if config.position.uses_ids else [])
        logits, *past = step(*inputs, *past)
        real = mask[:, begin:end] > 0
        assert distance(logits[real], expected[real]) < EQUAL
        begin = end
    assert begin == 16


@pytest.mark.parametrize("lengths", [[13, 8, 1], [2, 1, 2], [1, 1, 1]], ids=str)
def test_roformer_states(lengths: list[int]) -> None:
    sizes = {"hidden_size": 48, "num_hidden_layers": LAYERS, "num_attention_heads": 6, "intermediate_size": 100}
    options = {"vocab_size": VOCAB, "max_position_embeddings": 32, "layer_norm_eps": EPS, **EAGER}
    hf, config, model = twins(RoFormerModel(RoFormerConfig(**sizes, **options)))
    angles = torch.arange(32, dtype=torch.float64)[:, None] * rounded(8)
    hf.encoder.embed_positions.weight.data = torch.cat((angles.sin(), angles.cos()), 1)
    mask = torch.from_numpy(left_padded(lengths)).flip(1)
    ids, types = tokens(tuple(mask.shape)), tokens(tuple(mask.shape), 2)
    with torch.no_grad(), Float64():
        expected = hf(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
    (states,) = phase_module(config, "forward", model=model)(ids, mask, types)
    assert distance(states[mask > 0], expected[mask > 0]) < EQUAL


# T5: a head size of its own, head counts that are no power of two, distances beyond the last bucket.

T5S = {
    "6 heads": {},
    "8 wide heads, tanh GELU": {"num_heads": 8, "d_kv": 16, "feed_forward_proj": "gelu_new"},
    "few buckets": {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 11},
    "unscaled head": {"tie_word_embeddings": False},
}


def t5(**options: Any) -> tuple[PreTrainedModel, ModelConfig, nn.Module]:
    sizes = {"d_model": 64, "d_kv": 8, "d_ff": 50, "num_layers": LAYERS, "num_heads": 6, "vocab_size": VOCAB}
    rest = {"relative_attention_num_buckets": 16, "relative_attention_max_distance": 20, "layer_norm_epsilon": EPS}
    return twins(T5ForConditionalGeneration(T5Config(**{**sizes, **rest, **EAGER, **options})))


def pair(lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Source ids and mask, padded on the right."""
    mask = torch.from_numpy(left_padded(lengths)).flip(1)
    return tokens(tuple(mask.shape)), mask


@pytest.mark.parametrize("name", T5S)
@pytest.mark.parametrize("lengths", [[33, 12, 1], [3, 3, 2], [1, 1, 1]], ids=str)
def test_t5_logits(name: str, lengths: list[int]) -> None:
    hf, config, model = t5(**T5S[name])
    (source, source_mask), mask = pair([29, 7, 1]), torch.from_numpy(left_padded(lengths))
    ids = tokens(tuple(mask.shape))
    target = {"decoder_input_ids": ids, "decoder_attention_mask": mask}
    with torch.no_grad(), Float64():
        expected = hf(input_ids=source, attention_mask=source_mask, **target).logits
    (logits,) = phase_module(config, "forward", model=model)(source, source_mask, ids, mask)
    assert distance(logits[mask > 0], expected[mask > 0]) < EQUAL


@pytest.mark.parametrize("name", T5S)
def test_t5_cached_decoding(name: str) -> None:
    """Beyond the last bucket: seven tokens, then 1, 1, 2, 13 and 3 more."""
    hf, config, model = t5(**T5S[name])
    (source, source_mask), mask = pair([29, 7, 1]), torch.from_numpy(left_padded([27, 22, 21]))
    ids = tokens(tuple(mask.shape))
    states, *cross = phase_module(config, "encode", model=model)(source, source_mask)
    with torch.no_grad(), Float64():
        encoded = hf.encoder(input_ids=source, attention_mask=source_mask)
    assert distance(states[source_mask > 0], encoded.last_hidden_state[source_mask > 0]) < EQUAL
    theirs = EncoderDecoderCache(DynamicCache(config=hf.config), DynamicCache(config=hf.config))
    keyword = "cache" if "cache" in inspect.signature(hf.forward).parameters else "past_key_values"
    past: list[Tensor] = [torch.zeros(3, config.heads, 0, config.head_dim, dtype=torch.float64)] * (2 * config.layers)
    step, begin = phase_module(config, "step", model=model), 0
    for count in (7, 1, 1, 2, 13, 3):
        end = begin + count
        new, seen, real = ids[:, begin:end], mask[:, :end], mask[:, begin:end] > 0
        with torch.no_grad(), Float64():
            target = {"decoder_input_ids": new, "decoder_attention_mask": seen, keyword: theirs, "use_cache": True}
            expected = hf(encoder_outputs=encoded, attention_mask=source_mask, **target).logits
        logits, *past = step(new, source_mask, seen, *past, *cross)
        assert distance(logits[real], expected[real]) < EQUAL
        begin = end
    assert begin == 27


def test_slopes_are_theirs_up_to_their_rounding() -> None:
    for heads in range(1, 130):
        theirs = modeling_bloom._get_alibi_slopes(heads, "cpu")
        torch.testing.assert_close(torch.tensor(slopes(heads)).double(), theirs, rtol=2**-20, atol=0)


# Of the published sizes, each with the count of its model card; there is none for RoFormer.
FULL: dict[str, tuple[Callable[[], PreTrainedModel], int | None]] = {
    "t5-small": (lambda: T5ForConditionalGeneration(T5Config()), 60_506_624),
    "t5-base": (
        lambda: T5ForConditionalGeneration(T5Config(d_model=768, d_ff=3072, num_layers=12, num_heads=12)), 222_903_552,
    ),
    "bloom-560m": (lambda: BloomForCausalLM(BloomConfig(hidden_size=1024, n_layer=24, n_head=16)), 559_214_592),
    "bloom-7b1": (lambda: BloomForCausalLM(BloomConfig(hidden_size=4096, n_layer=30, n_head=32)), 7_069_016_064),
    "gpt-neox-20b": (lambda: GPTNeoXForCausalLM(GPTNeoXConfig()), 20_554_567_680),
    "chatglm2-6b": (
        lambda: GlmForCausalLM(GlmConfig(**{**IDS, "vocab_size": 65_024}, num_hidden_layers=28)), 6_243_584_000,
    ),
    "gpt-j-6b": (lambda: GPTJForCausalLM(GPTJConfig()), None),
    "roformer-base": (lambda: RoFormerModel(RoFormerConfig()), None),
}  # fmt: skip


@pytest.mark.parametrize("preset", FULL)
def test_parameters_of_the_published_sizes(preset: str) -> None:
    theirs, published = FULL[preset]
    with torch.device("meta"):
        named = theirs().named_parameters()
        count = sum(parameter.numel() for name, parameter in named if "embed_positions" not in name)  # computed here
    assert parameters(PRESETS[preset]) == count
    assert published in (None, count)


def test_gpt_j_is_what_its_card_rounds() -> None:
    """The card says 6,053,381,344, which is 610 rows of 4096 more than the checkpoint has."""
    assert round(parameters(PRESETS["gpt-j-6b"]) / 1e7) == 605
    assert 6_053_381_344 - parameters(PRESETS["gpt-j-6b"]) == 610 * 4096


REFUSED = {
    "gpt_neox": (GPTNeoXConfig, {"use_parallel_residual": False}, "use_parallel_residual False"),
    "bloom": (BloomConfig, {"apply_residual_connection_post_layernorm": True}, "post_layernorm True"),
    "roformer": (RoFormerConfig, {"rotary_value": True}, "rotary_value True"),
    "roformer, narrow": (RoFormerConfig, {"embedding_size": 100}, "embedding_size 100"),
    "t5, gated": (T5Config, {"feed_forward_proj": "gated-gelu"}, "feed_forward_proj 'gated-gelu'"),
    "t5, short": (T5Config, {"num_decoder_layers": 2}, "num_decoder_layers 2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_option_that_changes_the_function_is_refused(case: str) -> None:
    kind, options, value = REFUSED[case]
    config = kind(**options).to_dict()
    with pytest.raises(ConfigError, match=value):
        families()[config["model_type"]].config(config)
