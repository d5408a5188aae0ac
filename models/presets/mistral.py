"""Mistral and Mixtral."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..attention import Softmax
from ..config import Mixer, ModelConfig
from ..embedding import Tokens
from ..family import Family, Part, PerExpert
from ..feedforward import GLU, HF_ACTIVATIONS
from ..moe import MoE
from ..norm import RMSNorm
from ..position import Rope
from ..window import Window
from .llama import MODULES, hf_config

MISTRAL_7B = ModelConfig(
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
)

PRESETS = (
    MISTRAL_7B,
    replace(
        MISTRAL_7B,
        name="mixtral-8x7b",
        source="Jiang et al. 2024, table 1; model card Mixtral-8x7B-v0.1",
        mixer=Softmax(kv_heads=8),
        position=Rope(base=1_000_000.0),
        ffn=MoE(activation="silu", hidden=14_336, experts=8, top_k=2),
    ),
)


def layer_mixers(
    hf: Mapping[str, Any], window: int | None, slides: Callable[[int], bool], **options: Any
) -> Mixer | tuple[Mixer, ...]:
    """Attention with a window in some layers: those that `layer_types` names, or else those that slide."""
    full = Softmax(kv_heads=hf.get("num_key_value_heads"), **options)
    if window is None:
        return full
    sliding = Window(window=window, kv_heads=full.kv_heads, **options)
    default = ["sliding_attention" if slides(i) else "full_attention" for i in range(hf["num_hidden_layers"])]
    types = hf.get("layer_types") or default
    mixers = tuple({"sliding_attention": sliding, "full_attention": full}[kind] for kind in types)
    return mixers[0] if len(set(mixers)) == 1 else mixers


def _mistral(hf: Mapping[str, Any]) -> ModelConfig:
    return hf_config(hf, layer_mixers(hf, hf.get("sliding_window"), lambda layer: True))


def _mixtral(hf: Mapping[str, Any]) -> ModelConfig:
    moe = MoE(
        activation=HF_ACTIVATIONS[hf["hidden_act"]],
        hidden=hf["intermediate_size"],
        experts=hf["num_local_experts"],
        top_k=hf["num_experts_per_tok"],
    )
    return replace(_mistral(hf), ffn=moe)


_EXPERT = "layers.{i}.block_sparse_moe.experts.{e}"
_MIXTRAL: dict[str, str | Part | PerExpert] = {
    **{ours: theirs for ours, theirs in MODULES.items() if ".ffn." not in ours},
    "stack.layers.{i}.ffn.router": "layers.{i}.block_sparse_moe.gate",
    "stack.layers.{i}.ffn.experts.gate": PerExpert(f"{_EXPERT}.w1"),
    "stack.layers.{i}.ffn.experts.up": PerExpert(f"{_EXPERT}.w3"),
    "stack.layers.{i}.ffn.experts.down": PerExpert(f"{_EXPERT}.w2", axis=1),
}

FAMILIES = (
    Family(model_type="mistral", config=_mistral, prefix="model.", modules=MODULES),
    Family(model_type="mixtral", config=_mixtral, prefix="model.", modules=_MIXTRAL),
)
