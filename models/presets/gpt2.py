"""GPT-2."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..attention import Softmax
from ..config import ConfigError, ModelConfig, Residual
from ..embedding import Tokens
from ..family import Family, Part
from ..feedforward import HF_ACTIVATIONS, MLP
from ..norm import LayerNorm
from ..position import Learned
from .bert import refuse_groups

GPT2 = ModelConfig(
    name="gpt2",
    source="Radford et al. 2019, the smallest model; model card gpt2",
    topology="decoder",
    dim=768,
    layers=12,
    heads=12,
    vocab=50_257,
    context=1024,
    embedding=Tokens(),
    mixer=Softmax(),
    position=Learned(),
    norm=LayerNorm(),
    ffn=MLP("gelu_tanh", 3072),
    residual="pre",
)


def _larger(name: str, dim: int, layers: int, heads: int) -> ModelConfig:
    """One of the larger models of the same paper."""
    source = f"Radford et al. 2019, table 2; model card {name}"
    ffn = MLP("gelu_tanh", 4 * dim)
    return replace(GPT2, name=name, source=source, dim=dim, layers=layers, heads=heads, ffn=ffn)


PRESETS = (
    GPT2,
    _larger("gpt2-medium", 1024, 24, 16),
    _larger("gpt2-large", 1280, 36, 20),
    _larger("gpt2-xl", 1600, 48, 25),
)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    for option, plain in {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False}.items():
        if hf.get(option, plain) != plain:
            raise ConfigError(f"config.json: {option} {hf[option]} is not supported, only {plain}")
    ffn = MLP(HF_ACTIVATIONS[hf["activation_function"]], hf.get("n_inner") or 4 * hf["n_embd"])
    return hf_config(hf, ffn, "pre")


def hf_config(hf: Mapping[str, Any], ffn: MLP, residual: Residual) -> ModelConfig:
    """A configuration of the GPT-1 and GPT-2 kind around a feed-forward layer and a wiring.

    Raises:
        ConfigError: key and value heads in groups, which these families do not have.
    """
    refuse_groups(hf, hf["n_head"])
    return ModelConfig(
        name=hf["model_type"],
        source="config.json",
        topology="decoder",
        dim=hf["n_embd"],
        layers=hf["n_layer"],
        heads=hf["n_head"],
        vocab=hf["vocab_size"],
        context=hf["n_positions"],
        embedding=Tokens(),
        mixer=Softmax(),
        position=Learned(),
        norm=LayerNorm(hf["layer_norm_epsilon"]),
        ffn=ffn,
        residual=residual,
        tie_embeddings=hf.get("tie_word_embeddings", True),
    )


def _attention(index: int) -> Part:
    """GPT-2 keeps Q, K and V in one matrix, stored (in, out)."""
    return Part("h.{i}.attn.c_attn", index, of=3, transposed=True)


MODULES: dict[str, str | Part] = {
    "embedding.word": "wte",
    "stack.position.table": "wpe",
    "stack.layers.{i}.mixer.q": _attention(0),
    "stack.layers.{i}.mixer.k": _attention(1),
    "stack.layers.{i}.mixer.v": _attention(2),
    "stack.layers.{i}.mixer.o": Part("h.{i}.attn.c_proj", transposed=True),
    "stack.layers.{i}.mixer_joint.norm": "h.{i}.ln_1",
    "stack.layers.{i}.ffn.up": Part("h.{i}.mlp.c_fc", transposed=True),
    "stack.layers.{i}.ffn.down": Part("h.{i}.mlp.c_proj", transposed=True),
    "stack.layers.{i}.ffn_joint.norm": "h.{i}.ln_2",
    "stack.final_norm": "ln_f",
    "head.linear": "lm_head",
}

FAMILIES = (
    Family(
        model_type="gpt2",
        config=_config,
        prefix="transformer.",
        modules=MODULES,
        ignored=(r"h\.\d+\.attn\.(masked_)?bias",),
    ),
)
