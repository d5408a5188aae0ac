"""GPT-NeoX."""

from collections.abc import Mapping
from typing import Any

from ..attention import Softmax
from ..config import Bias, ConfigError, ModelConfig
from ..embedding import Tokens
from ..family import Family, PerHead
from ..feedforward import HF_ACTIVATIONS, MLP
from ..hf_rope import hf_rope
from ..norm import LayerNorm
from ..position import Rope

PRESETS = (
    ModelConfig(
        name="gpt-neox-20b",
        source="Black et al. 2022, table 1; model card gpt-neox-20b",
        topology="decoder",
        dim=6144,
        layers=44,
        heads=64,
        vocab=50_432,
        context=2048,
        embedding=Tokens(),
        mixer=Softmax(),
        position=Rope(fraction=0.25),
        norm=LayerNorm(),
        ffn=MLP("gelu_tanh", 24_576),
        residual="parallel2",
        tie_embeddings=False,
    ),
)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    if not hf.get("use_parallel_residual", True):
        raise ConfigError("config.json: use_parallel_residual False is not supported, only True")
    attention = hf.get("attention_bias", True)
    return ModelConfig(
        name="gpt_neox",
        source="config.json",
        topology="decoder",
        dim=hf["hidden_size"],
        layers=hf["num_hidden_layers"],
        heads=hf["num_attention_heads"],
        vocab=hf["vocab_size"],
        context=hf["max_position_embeddings"],
        embedding=Tokens(),
        mixer=Softmax(),
        position=hf_rope(hf, fraction=0.25),
        norm=LayerNorm(hf["layer_norm_eps"]),
        ffn=MLP(HF_ACTIVATIONS[hf["hidden_act"]], hf["intermediate_size"]),
        residual="parallel2",
        bias=Bias(qkv=attention, out=attention, ffn=True),
        tie_embeddings=hf.get("tie_word_embeddings", False),
    )


def _attention(index: int) -> PerHead:
    return PerHead("gpt_neox.layers.{i}.attention.query_key_value", index)


FAMILIES = (
    Family(
        model_type="gpt_neox",
        config=_config,
        modules={
            "embedding.word": "gpt_neox.embed_in",
            "stack.layers.{i}.mixer.q": _attention(0),
            "stack.layers.{i}.mixer.k": _attention(1),
            "stack.layers.{i}.mixer.v": _attention(2),
            "stack.layers.{i}.mixer.o": "gpt_neox.layers.{i}.attention.dense",
            "stack.layers.{i}.norm": "gpt_neox.layers.{i}.input_layernorm",
            "stack.layers.{i}.ffn_norm": "gpt_neox.layers.{i}.post_attention_layernorm",
            "stack.layers.{i}.ffn.up": "gpt_neox.layers.{i}.mlp.dense_h_to_4h",
            "stack.layers.{i}.ffn.down": "gpt_neox.layers.{i}.mlp.dense_4h_to_h",
            "stack.final_norm": "gpt_neox.final_layer_norm",
            "head.linear": "embed_out",
        },
        ignored=(r"gpt_neox\.layers\.\d+\.attention\.((masked_)?bias|rotary_emb\.inv_freq)",),
    ),
)
