"""ChatGLM2, and its successors under Hugging Face's name GLM."""

from collections.abc import Mapping
from typing import Any

from ..attention import Softmax
from ..config import Bias, ModelConfig
from ..embedding import Tokens
from ..family import Family, Part
from ..feedforward import GLU, HF_ACTIVATIONS
from ..hf_rope import hf_rope
from ..norm import RMSNorm
from ..position import Rope
from .llama import MODULES

PRESETS = (
    ModelConfig(
        name="chatglm2-6b",
        source="Team GLM 2024; model card chatglm2-6b",
        topology="decoder",
        dim=4096,
        layers=28,
        heads=32,
        vocab=65_024,
        context=32_768,
        embedding=Tokens(),
        mixer=Softmax(kv_heads=2),
        position=Rope(layout="interleaved", fraction=0.5),
        norm=RMSNorm(1e-5),
        ffn=GLU("silu", 13_696),
        residual="pre",
        bias=Bias(qkv=True),
        tie_embeddings=False,
    ),
)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    return ModelConfig(
        name="glm",
        source="config.json",
        topology="decoder",
        dim=hf["hidden_size"],
        layers=hf["num_hidden_layers"],
        heads=hf["num_attention_heads"],
        vocab=hf["vocab_size"],
        context=hf["max_position_embeddings"],
        embedding=Tokens(),
        mixer=Softmax(kv_heads=hf["num_key_value_heads"]),
        position=hf_rope(hf, layout="interleaved", fraction=0.5),
        norm=RMSNorm(hf["rms_norm_eps"]),
        ffn=GLU(HF_ACTIVATIONS[hf["hidden_act"]], hf["intermediate_size"]),
        residual="pre",
        bias=Bias(qkv=hf.get("attention_bias", True)),
        tie_embeddings=hf.get("tie_word_embeddings", False),
        head_size=hf.get("head_dim"),
    )


FAMILIES = (
    Family(
        model_type="glm",
        config=_config,
        prefix="model.",
        modules=MODULES
        | {
            "stack.layers.{i}.ffn.gate": Part("layers.{i}.mlp.gate_up_proj", 0, of=2),
            "stack.layers.{i}.ffn.up": Part("layers.{i}.mlp.gate_up_proj", 1, of=2),
        },
    ),
)
