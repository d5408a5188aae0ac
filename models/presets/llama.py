"""Llama."""

from collections.abc import Mapping
from typing import Any

from ..attention import Softmax
from ..config import ConfigError, Mixer, ModelConfig
from ..embedding import Tokens
from ..family import Family
from ..feedforward import GLU, HF_ACTIVATIONS
from ..norm import RMSNorm
from ..position import Rope

PRESETS = (
    ModelConfig(
        name="llama3-8b",
        source="Grattafiori et al. 2024; model card Meta-Llama-3-8B",
        topology="decoder",
        dim=4096,
        layers=32,
        heads=32,
        vocab=128_256,
        context=8192,
        embedding=Tokens(),
        mixer=Softmax(kv_heads=8),
        position=Rope(base=500_000.0),
        norm=RMSNorm(1e-5),
        ffn=GLU("silu", 14_336),
        residual="pre",
        bias=False,
        tie_embeddings=False,
    ),
)


def hf_config(hf: Mapping[str, Any], mixer: Mixer) -> ModelConfig:
    """A configuration of the Llama kind around a mixer.

    Raises:
        ConfigError: a RoPE scaling, which is not supported yet.
    """
    rope = hf.get("rope_parameters") or {"rope_theta": hf.get("rope_theta", 10_000.0)}
    scaling = hf.get("rope_scaling") or {}
    kind = rope.get("rope_type") or scaling.get("rope_type") or scaling.get("type") or "default"
    if kind != "default":
        raise ConfigError(f"config.json: RoPE scaling {kind!r} is not supported, only 'default'")
    return ModelConfig(
        name=hf["model_type"],
        source="config.json",
        topology="decoder",
        dim=hf["hidden_size"],
        layers=hf["num_hidden_layers"],
        heads=hf["num_attention_heads"],
        vocab=hf["vocab_size"],
        context=hf["max_position_embeddings"],
        embedding=Tokens(),
        mixer=mixer,
        position=Rope(base=rope["rope_theta"]),
        norm=RMSNorm(hf["rms_norm_eps"]),
        ffn=GLU(HF_ACTIVATIONS[hf["hidden_act"]], hf["intermediate_size"]),
        residual="pre",
        bias=hf.get("attention_bias", False),
        tie_embeddings=hf.get("tie_word_embeddings", False),
    )


MODULES = {
    "embedding.word": "embed_tokens",
    "stack.layers.{i}.mixer.q": "layers.{i}.self_attn.q_proj",
    "stack.layers.{i}.mixer.k": "layers.{i}.self_attn.k_proj",
    "stack.layers.{i}.mixer.v": "layers.{i}.self_attn.v_proj",
    "stack.layers.{i}.mixer.o": "layers.{i}.self_attn.o_proj",
    "stack.layers.{i}.mixer_joint.norm": "layers.{i}.input_layernorm",
    "stack.layers.{i}.ffn.gate": "layers.{i}.mlp.gate_proj",
    "stack.layers.{i}.ffn.up": "layers.{i}.mlp.up_proj",
    "stack.layers.{i}.ffn.down": "layers.{i}.mlp.down_proj",
    "stack.layers.{i}.ffn_joint.norm": "layers.{i}.post_attention_layernorm",
    "stack.final_norm": "norm",
    "head.linear": "lm_head",
}

FAMILIES = (
    Family(
        model_type="llama",
        config=lambda hf: hf_config(hf, Softmax(kv_heads=hf.get("num_key_value_heads"))),
        prefix="model.",
        modules=MODULES,
        ignored=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
    ),
)
