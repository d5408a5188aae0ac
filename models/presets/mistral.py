"""Mistral."""

from collections.abc import Mapping
from typing import Any

from ..attention import Softmax
from ..config import ModelConfig
from ..embedding import Tokens
from ..family import Family
from ..feedforward import GLU
from ..norm import RMSNorm
from ..position import Rope
from ..window import Window
from .llama import MODULES, hf_config

PRESETS = (
    ModelConfig(
        name="mistral-7b",
        source="Jiang et al. 2023; model card Mistral-7B-v0.1",
        topology="decoder",
        dim=4096,
        layers=32,
        heads=32,
        vocab=32_000,
        context=32_768,
        embedding=Tokens(),
        mixer=Window(window=4096, kv_heads=8),
        position=Rope(),
        norm=RMSNorm(1e-5),
        ffn=GLU("silu", 14_336),
        residual="pre",
        bias=False,
        tie_embeddings=False,
    ),
)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    kv_heads, window = hf.get("num_key_value_heads"), hf.get("sliding_window")
    return hf_config(hf, Window(window=window, kv_heads=kv_heads) if window else Softmax(kv_heads=kv_heads))


FAMILIES = (Family(model_type="mistral", config=_config, prefix="model.", modules=MODULES),)
