"""Gemma 2."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..attention import Softmax
from ..config import ConfigError, ModelConfig
from ..embedding import Tokens
from ..family import Family, Part, PerExpert
from ..feedforward import GLU
from ..norm import RMSNorm
from ..position import Rope
from ..window import Window
from .llama import MODULES, hf_config
from .mistral import layer_mixers

PRESETS = (
    ModelConfig(
        name="gemma2-2b",
        source="Riviere et al. 2024, tables 1 and 2; model card gemma-2-2b",
        topology="decoder",
        dim=2304,
        layers=26,
        heads=8,
        head_size=256,
        vocab=256_000,
        context=8192,
        embedding=Tokens(scale=True),
        mixer=(Window(window=4096, kv_heads=4, softcap=50.0), Softmax(kv_heads=4, softcap=50.0)),
        position=Rope(),
        norm=RMSNorm(1e-6),
        ffn=GLU("gelu_tanh", 9216),
        residual="sandwich",
        bias=False,
        logit_softcap=30.0,
    ),
)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    if hf.get("use_bidirectional_attention"):
        raise ConfigError("config.json: use_bidirectional_attention True is not supported, only causal attention")
    scalar = hf["query_pre_attn_scalar"]
    mixers = layer_mixers(
        hf,
        hf["sliding_window"],
        lambda layer: layer % 2 == 0,
        scale=None if scalar == hf["head_dim"] else scalar**-0.5,
        softcap=hf.get("attn_logit_softcapping"),
    )
    return replace(
        hf_config({"tie_word_embeddings": True, **hf, "hidden_act": hf["hidden_activation"]}, mixers),
        embedding=Tokens(scale=True),
        residual="sandwich",
        logit_softcap=hf.get("final_logit_softcapping"),
    )


def _norm(name: str) -> Part:
    """Gemma stores w and multiplies by 1 + w: the same norm, so the 1 is added when the weight is read."""
    return Part(name, plus=1.0)


_MODULES: dict[str, str | Part | PerExpert] = {
    **MODULES,
    "stack.layers.{i}.mixer_joint.norm": _norm("layers.{i}.input_layernorm"),
    "stack.layers.{i}.mixer_joint.norm_after": _norm("layers.{i}.post_attention_layernorm"),
    "stack.layers.{i}.ffn_joint.norm": _norm("layers.{i}.pre_feedforward_layernorm"),
    "stack.layers.{i}.ffn_joint.norm_after": _norm("layers.{i}.post_feedforward_layernorm"),
    "stack.final_norm": _norm("norm"),
}

FAMILIES = (Family(model_type="gemma2", config=_config, prefix="model.", modules=_MODULES),)
