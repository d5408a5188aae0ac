"""Qwen."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..attention import Softmax
from ..config import Bias, ModelConfig
from ..family import Family
from ..feedforward import GLU
from ..norm import RMSNorm
from ..position import Rope
from .llama import LLAMA_7B, MODULES, hf_config
from .mistral import layer_mixers

QWEN_7B = replace(
    LLAMA_7B,
    name="qwen-7b",
    source="Bai et al. 2023; model card Qwen-7B",
    vocab=151_936,
    context=8192,
    bias=Bias(qkv=True),
)
QWEN2_7B = replace(
    QWEN_7B,
    name="qwen2-7b",
    source="Yang et al. 2024, table 1; model card Qwen2-7B",
    dim=3584,
    layers=28,
    heads=28,
    vocab=152_064,
    context=131_072,
    mixer=Softmax(kv_heads=4),
    position=Rope(base=1_000_000.0),
    ffn=GLU("silu", 18_944),
)

PRESETS = (
    QWEN_7B,
    QWEN2_7B,
    replace(
        QWEN2_7B,
        name="qwen3-8b",
        source="Yang et al. 2025, table 1; model card Qwen3-8B",
        dim=4096,
        layers=36,
        heads=32,
        vocab=151_936,
        context=40_960,
        mixer=Softmax(kv_heads=8, qk_norm=RMSNorm(1e-6)),
        ffn=GLU("silu", 12_288),
        bias=False,
    ),
)


def _window(hf: Mapping[str, Any]) -> int | None:
    return hf.get("sliding_window") if hf.get("use_sliding_window") else None


def _qwen2(hf: Mapping[str, Any]) -> ModelConfig:
    """Query, key and value have a bias, whatever config.json says; the last layers may have a window."""
    mixers = layer_mixers(hf, _window(hf), lambda layer: layer >= hf["max_window_layers"])
    return replace(hf_config(hf, mixers), bias=Bias(qkv=True))


def _qwen3(hf: Mapping[str, Any]) -> ModelConfig:
    qk_norm = RMSNorm(hf["rms_norm_eps"])
    return hf_config(hf, layer_mixers(hf, _window(hf), lambda layer: layer >= hf["max_window_layers"], qk_norm=qk_norm))


FAMILIES = (
    Family(model_type="qwen2", config=_qwen2, prefix="model.", modules=MODULES),
    Family(
        model_type="qwen3",
        config=_qwen3,
        prefix="model.",
        modules={
            **MODULES,
            "stack.layers.{i}.mixer.q_norm": "layers.{i}.self_attn.q_norm",
            "stack.layers.{i}.mixer.k_norm": "layers.{i}.self_attn.k_norm",
        },
    ),
)
