"""Llama."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..attention import Softmax
from ..config import Bias, Mixer, ModelConfig
from ..embedding import Tokens
from ..family import Family
from ..feedforward import GLU, HF_ACTIVATIONS
from ..hf_rope import hf_rope
from ..norm import RMSNorm
from ..position import Rope
from ..rope_scaling import Linear, Llama3

LLAMA_7B = ModelConfig(
    name="llama-7b",
    source="Touvron et al. 2023a, table 2",
    topology="decoder",
    dim=4096,
    layers=32,
    heads=32,
    vocab=32_000,
    context=2048,
    embedding=Tokens(),
    mixer=Softmax(),
    position=Rope(),
    norm=RMSNorm(1e-6),
    ffn=GLU("silu", 11_008),
    residual="pre",
    bias=False,
    tie_embeddings=False,
)
LLAMA2_7B = replace(
    LLAMA_7B,
    name="llama2-7b",
    source="Touvron et al. 2023b; model card Llama-2-7b",
    context=4096,
    norm=RMSNorm(1e-5),
)
LLAMA3_8B = replace(
    LLAMA2_7B,
    name="llama3-8b",
    source="Grattafiori et al. 2024; model card Meta-Llama-3-8B",
    vocab=128_256,
    context=8192,
    mixer=Softmax(kv_heads=8),
    position=Rope(base=500_000.0),
    ffn=GLU("silu", 14_336),
)


def _70b(small: ModelConfig, name: str, source: str) -> ModelConfig:
    """The large model of a generation: Llama 2 and 3 have the same."""
    mixer, ffn = Softmax(kv_heads=8), GLU("silu", 28_672)
    return replace(small, name=name, source=source, dim=8192, layers=80, heads=64, mixer=mixer, ffn=ffn)


PRESETS = (
    LLAMA_7B,
    LLAMA2_7B,
    _70b(LLAMA2_7B, "llama2-70b", "Touvron et al. 2023b; model card Llama-2-70b"),
    LLAMA3_8B,
    replace(
        LLAMA2_7B,
        name="llama2-long",
        source="model card Together LLaMA-2-7B-32K: position interpolation, Chen et al. 2023",
        context=32_768,
        position=Rope(scaling=Linear(8.0)),
    ),
    replace(
        LLAMA2_7B,
        name="codellama-7b",
        source="Rozière et al. 2023, section 2; model card CodeLlama-7b",
        vocab=32_016,
        context=16_384,
        position=Rope(base=1_000_000.0),
    ),
    replace(
        LLAMA3_8B,
        name="llama3.1-8b",
        source="Grattafiori et al. 2024; model card Llama-3.1-8B",
        context=131_072,
        position=Rope(base=500_000.0, scaling=Llama3(factor=8.0, original=8192)),
    ),
    _70b(LLAMA3_8B, "llama3-70b", "Grattafiori et al. 2024; model card Meta-Llama-3-70B"),
    replace(
        LLAMA_7B,
        name="deepseek-7b",
        source="DeepSeek-AI 2024 (DeepSeek LLM), table 2; model card deepseek-llm-7b-base",
        layers=30,
        vocab=102_400,
        context=4096,
    ),
    replace(
        LLAMA2_7B,
        name="yi-6b",
        source="01.AI 2024, table 1; model card Yi-6B",
        vocab=64_000,
        mixer=Softmax(kv_heads=4),
        position=Rope(base=5_000_000.0),
    ),
)


def hf_config(hf: Mapping[str, Any], mixer: Mixer | tuple[Mixer, ...]) -> ModelConfig:
    """A configuration of the Llama kind around a mixer.

    Raises:
        ConfigError: a RoPE scaling that is not known.
    """
    attention_bias = hf.get("attention_bias", False)
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
        position=hf_rope(hf),
        norm=RMSNorm(hf["rms_norm_eps"]),
        ffn=GLU(HF_ACTIVATIONS[hf["hidden_act"]], hf["intermediate_size"]),
        residual="pre",
        bias=Bias(qkv=attention_bias, out=attention_bias, ffn=hf.get("mlp_bias", False)),
        tie_embeddings=hf.get("tie_word_embeddings", False),
        head_size=hf.get("head_dim"),
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
