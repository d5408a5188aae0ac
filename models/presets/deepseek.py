"""DeepSeek-V2; the first DeepSeek model is a Llama."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..config import ConfigError, ModelConfig
from ..embedding import Tokens
from ..family import Family, Part, PerExpert
from ..feedforward import GLU, HF_ACTIVATIONS
from ..hf_rope import hf_rope
from ..latent import Latent
from ..moe import MoE
from ..norm import RMSNorm
from ..position import Rope
from ..rope_scaling import Yarn
from .llama import MODULES, hf_config

# Scores grow by the square of YaRN's root at weight 0.707; the rotation itself does not grow them.
YARN = Yarn(factor=40.0, original=4096, attention=1.0)
GROWTH = YARN.root(0.707) ** 2
LAYERS = 27

PRESETS = (
    ModelConfig(
        name="deepseek-v2-lite",
        source="Liu et al. 2024, appendix B; model card DeepSeek-V2-Lite",
        topology="decoder",
        dim=2048,
        layers=LAYERS,
        heads=16,
        vocab=102_400,
        context=163_840,
        embedding=Tokens(),
        mixer=Latent(rank=512, plain=128, value=128, growth=GROWTH),
        position=Rope(layout="interleaved", scaling=YARN),
        norm=RMSNorm(1e-6),
        ffn=(
            GLU("silu", 10_944),
            *(MoE(activation="silu", hidden=1408, experts=64, top_k=6, shared=2, renormalise=False),) * (LAYERS - 1),
        ),
        residual="pre",
        bias=False,
        tie_embeddings=False,
        head_size=64,
    ),
)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    greedy = {"topk_method": "greedy", "routed_scaling_factor": 1.0, "norm_topk_prob": False, "mlp_bias": False}
    for option, plain in greedy.items():
        if hf.get(option, plain) != plain:
            raise ConfigError(f"config.json: {option} {hf[option]} is not supported, only {plain}")
    mixer = Latent(
        rank=hf["kv_lora_rank"],
        plain=hf["qk_nope_head_dim"],
        value=hf["v_head_dim"],
        q_rank=hf["q_lora_rank"],
        growth=_growth({**(hf.get("rope_scaling") or {}), **(hf.get("rope_parameters") or {})}),
    )
    base = hf_config(hf, mixer)
    dense, experts = hf["first_k_dense_replace"], _experts(hf)
    return replace(
        base,
        position=hf_rope(hf, layout="interleaved"),
        ffn=(*(base.ffns[:dense]), *(experts,) * (base.layers - dense)),
        head_size=hf["qk_rope_head_dim"],
    )


def _experts(hf: Mapping[str, Any]) -> MoE:
    return MoE(
        activation=HF_ACTIVATIONS[hf["hidden_act"]],
        hidden=hf["moe_intermediate_size"],
        experts=hf["n_routed_experts"],
        top_k=hf["num_experts_per_tok"],
        shared=hf["n_shared_experts"],
        renormalise=False,
    )


def _growth(rope: Mapping[str, Any]) -> float:
    """What scores grow by beside the rotation, by `mscale_all_dim`."""
    factor, weight = rope.get("factor"), rope.get("mscale_all_dim")
    return Yarn(factor, 1).root(weight) ** 2 if factor and weight else 1.0


_EXPERT = "layers.{i}.mlp.experts.{e}"
_MODULES: dict[str, str | Part | PerExpert] = {
    **{ours: theirs for ours, theirs in MODULES.items() if not ours.endswith(("mixer.k", "mixer.v"))},
    "stack.layers.{i}.mixer.q.0": "layers.{i}.self_attn.q_a_proj",
    "stack.layers.{i}.mixer.q.1": "layers.{i}.self_attn.q_a_layernorm",
    "stack.layers.{i}.mixer.q.2": "layers.{i}.self_attn.q_b_proj",
    "stack.layers.{i}.mixer.down": "layers.{i}.self_attn.kv_a_proj_with_mqa",
    "stack.layers.{i}.mixer.norm": "layers.{i}.self_attn.kv_a_layernorm",
    "stack.layers.{i}.mixer.up": "layers.{i}.self_attn.kv_b_proj",
    "stack.layers.{i}.ffn.router": "layers.{i}.mlp.gate",
    "stack.layers.{i}.ffn.experts.gate": PerExpert(f"{_EXPERT}.gate_proj"),
    "stack.layers.{i}.ffn.experts.up": PerExpert(f"{_EXPERT}.up_proj"),
    "stack.layers.{i}.ffn.experts.down": PerExpert(f"{_EXPERT}.down_proj", axis=1),
    "stack.layers.{i}.ffn.shared.gate": "layers.{i}.mlp.shared_experts.gate_proj",
    "stack.layers.{i}.ffn.shared.up": "layers.{i}.mlp.shared_experts.up_proj",
    "stack.layers.{i}.ffn.shared.down": "layers.{i}.mlp.shared_experts.down_proj",
}

FAMILIES = (Family(model_type="deepseek_v2", config=_config, prefix="model.", modules=_MODULES),)
