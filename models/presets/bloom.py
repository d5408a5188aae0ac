"""BLOOM."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..attention import Softmax
from ..config import ConfigError, ModelConfig
from ..embedding import Tokens
from ..family import Family, PerHead
from ..feedforward import MLP
from ..norm import LayerNorm
from ..relative import Alibi

BLOOM_560M = ModelConfig(
    name="bloom-560m",
    source="BigScience 2022, table 3; model card bloom-560m",
    topology="decoder",
    dim=1024,
    layers=24,
    heads=16,
    vocab=250_880,
    context=2048,
    embedding=Tokens(norm=LayerNorm()),
    mixer=Softmax(),
    position=Alibi(),
    norm=LayerNorm(),
    ffn=MLP("gelu_tanh", 4096),
    residual="pre",
)

PRESETS = (
    BLOOM_560M,
    replace(
        BLOOM_560M,
        name="bloom-7b1",
        source="BigScience 2022, table 3; model card bloom-7b1",
        dim=4096,
        layers=30,
        heads=32,
        ffn=MLP("gelu_tanh", 16_384),
    ),
)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    if hf.get("apply_residual_connection_post_layernorm"):
        raise ConfigError("config.json: apply_residual_connection_post_layernorm True is not supported, only False")
    dim, norm = hf.get("hidden_size") or hf["n_embed"], LayerNorm(hf["layer_norm_epsilon"])
    return ModelConfig(
        name="bloom",
        source="config.json",
        topology="decoder",
        dim=dim,
        layers=hf["n_layer"],
        heads=hf.get("n_head") or hf["num_attention_heads"],
        vocab=hf["vocab_size"],
        context=hf.get("seq_length", 2048),
        embedding=Tokens(norm=norm),
        mixer=Softmax(),
        position=Alibi(),
        norm=norm,
        ffn=MLP("gelu_tanh", 4 * dim),
        residual="pre",
        tie_embeddings=hf.get("tie_word_embeddings", True),
    )


def _attention(index: int) -> PerHead:
    return PerHead("h.{i}.self_attention.query_key_value", index)


FAMILIES = (
    Family(
        model_type="bloom",
        config=_config,
        prefix="transformer.",
        modules={
            "embedding.word": "word_embeddings",
            "stack.embedding_norm": "word_embeddings_layernorm",
            "stack.layers.{i}.mixer.q": _attention(0),
            "stack.layers.{i}.mixer.k": _attention(1),
            "stack.layers.{i}.mixer.v": _attention(2),
            "stack.layers.{i}.mixer.o": "h.{i}.self_attention.dense",
            "stack.layers.{i}.mixer_joint.norm": "h.{i}.input_layernorm",
            "stack.layers.{i}.ffn.up": "h.{i}.mlp.dense_h_to_4h",
            "stack.layers.{i}.ffn.down": "h.{i}.mlp.dense_4h_to_h",
            "stack.layers.{i}.ffn_joint.norm": "h.{i}.post_attention_layernorm",
            "stack.final_norm": "ln_f",
            "head.linear": "lm_head",
        },
    ),
)
