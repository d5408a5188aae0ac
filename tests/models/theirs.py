"""The models of transformers that ours are compared with: small, random, wholly in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.core_model_loading import revert_weight_conversion

from isorun.models.checkpoints import copy, families
from isorun.models.config import ModelConfig
from isorun.models.transformer import build

from .plain import float32, frequencies, randomise

HEADS, GROUPS, DIM, HEAD_DIM, BASE, WINDOW = 6, 2, 48, 10, 500.0, 5
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
    head_dim = options.get("head_dim", DIM // HEADS)
    built.model.rotary_emb.inv_freq = torch.from_numpy(float32(frequencies(head_dim, BASE)))
    return built


def llama(**options: Any) -> PreTrainedModel:
    return llama_like(LlamaForCausalLM, LlamaConfig, **options)


def mixtral(**options: Any) -> PreTrainedModel:
    sizes = {"num_local_experts": 5, "num_experts_per_tok": 2, "experts_implementation": "eager"}
    return llama_like(MixtralForCausalLM, MixtralConfig, **{**sizes, **options})


def qwen2(**options: Any) -> PreTrainedModel:
    return llama_like(Qwen2ForCausalLM, Qwen2Config, **options)


def qwen3(**options: Any) -> PreTrainedModel:
    return llama_like(Qwen3ForCausalLM, Qwen3Config, **{"head_dim": DIM // HEADS, **options})


def gemma2(**options: Any) -> PreTrainedModel:
    """Caps small enough to bend: scores and logits are of order 1 here."""
    caps = {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0, "query_pre_attn_scalar": 7}
    sizes = {"head_dim": HEAD_DIM, "sliding_window": WINDOW}
    hf = llama_like(Gemma2ForCausalLM, Gemma2Config, **{**caps, **sizes, **options})
    hf.model.embed_tokens.embed_scale = torch.tensor(DIM**0.5, dtype=torch.float64)  # theirs is rounded to float32
    return hf


def gpt1(**options: Any) -> PreTrainedModel:
    sizes = {"n_embd": DIM, "n_layer": 3, "n_head": HEADS, "n_positions": 32, "layer_norm_epsilon": EPS}
    return OpenAIGPTLMHeadModel(OpenAIGPTConfig(**sizes, vocab_size=37, attn_implementation="eager", **options))


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
    "mixtral": mixtral,
    "mixtral, one of three, window, tied": lambda: mixtral(
        num_local_experts=3, num_experts_per_tok=1, sliding_window=WINDOW, tie_word_embeddings=True
    ),
    "qwen2": qwen2,
    "qwen2, window in the last two layers, tied": lambda: qwen2(
        use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1, tie_word_embeddings=True
    ),
    "qwen3": qwen3,
    "qwen3, wide heads, biases, window in one layer": lambda: qwen3(
        head_dim=HEAD_DIM, attention_bias=True, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=2
    ),
    "gemma2": gemma2,
    "gemma2, no caps, scaled by its head": lambda: gemma2(
        attn_logit_softcapping=None, final_logit_softcapping=None, query_pre_attn_scalar=HEAD_DIM
    ),
    "gemma2, capped and scaled by its head, untied": lambda: gemma2(
        query_pre_attn_scalar=HEAD_DIM, tie_word_embeddings=False
    ),
    "gpt1": gpt1,
    "gpt1, ReLU": lambda: gpt1(afn="relu"),
}


def twins(hf: PreTrainedModel) -> tuple[PreTrainedModel, ModelConfig, nn.Module]:
    """A model of theirs with new weights, and ours with the same, both in float64."""
    randomise(hf)
    family = families()[hf.config.model_type]
    config = family.config(hf.config.to_dict())
    ours = build(config).double()
    copy(ours, family, revert_weight_conversion(hf, hf.state_dict()))  # named as in a file
    return hf, config, ours


def tokens(shape: tuple[int, int], limit: int = 37) -> Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(0, limit, shape))


def counted(mask: Tensor) -> Tensor:
    """Positions row by row: 0 at padding, then 0, 1, 2 …"""
    rows = [[0] * int((row == 0).sum()) + list(range(int(row.sum()))) for row in mask]
    return torch.tensor(rows)
