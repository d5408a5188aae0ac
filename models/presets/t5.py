"""T5."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..attention import Softmax
from ..config import ConfigError, ModelConfig
from ..embedding import Tokens
from ..family import Family
from ..feedforward import HF_ACTIVATIONS, MLP
from ..norm import RMSNorm
from ..relative import RelativeBias

T5_SMALL = ModelConfig(
    name="t5-small",
    source="Raffel et al. 2020; model card t5-small",
    topology="encoder-decoder",
    dim=512,
    layers=6,
    heads=8,
    vocab=32_128,
    context=512,
    embedding=Tokens(),
    mixer=Softmax(scale=1.0),
    position=RelativeBias(),
    norm=RMSNorm(1e-6),
    ffn=MLP("relu", 2048),
    residual="pre",
    bias=False,
    scale_logits=True,
)

PRESETS = (
    T5_SMALL,
    replace(
        T5_SMALL,
        name="t5-base",
        source="Raffel et al. 2020; model card t5-base",
        dim=768,
        layers=12,
        heads=12,
        ffn=MLP("relu", 3072),
    ),
)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    layers, activation = hf["num_layers"], hf.get("feed_forward_proj", "relu")
    if hf.get("num_decoder_layers") not in (None, layers):
        raise ConfigError(f"config.json: num_decoder_layers {hf['num_decoder_layers']} is not num_layers {layers}")
    if activation not in HF_ACTIVATIONS:
        raise ConfigError(f"config.json: feed_forward_proj {activation!r} is none of {', '.join(HF_ACTIVATIONS)}")
    tied = hf.get("tie_word_embeddings", True)
    return ModelConfig(
        name="t5",
        source="config.json",
        topology="encoder-decoder",
        dim=hf["d_model"],
        layers=layers,
        heads=hf["num_heads"],
        vocab=hf["vocab_size"],
        context=hf.get("n_positions", 512),
        embedding=Tokens(),
        mixer=Softmax(scale=1.0),
        position=RelativeBias(hf["relative_attention_num_buckets"], hf.get("relative_attention_max_distance", 128)),
        norm=RMSNorm(hf["layer_norm_epsilon"]),
        ffn=MLP(HF_ACTIVATIONS[activation], hf["d_ff"]),
        residual="pre",
        bias=False,
        tie_embeddings=tied,
        head_size=hf["d_kv"],
        scale_logits=hf.get("scale_decoder_outputs", tied),
    )


def _stack(stack: str, *sublayers: str) -> dict[str, str]:
    """The names of one stack, where Hugging Face numbers the sublayers of a block."""
    modules = {
        f"{stack}.position.table": f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias",
        f"{stack}.final_norm": f"{stack}.final_layer_norm",
    }
    for number, sublayer in enumerate(sublayers):
        ours, theirs = f"{stack}.layers.{{i}}.{sublayer}", f"{stack}.block.{{i}}.layer.{number}"
        modules[f"{ours}_joint.norm"] = f"{theirs}.layer_norm"
        modules |= {f"{ours}.{part}": f"{theirs}.{name}" for part, name in _SUBLAYERS[sublayer].items()}
    return modules


_SUBLAYERS = {
    "mixer": {part: f"SelfAttention.{part}" for part in "qkvo"},
    "cross": {part: f"EncDecAttention.{part}" for part in "qkvo"},
    "ffn": {"up": "DenseReluDense.wi", "down": "DenseReluDense.wo"},
}

FAMILIES = (
    Family(
        model_type="t5",
        config=_config,
        modules={
            "embedding.word": "shared",
            "head.linear": "lm_head",
            **_stack("encoder", "mixer", "ffn"),
            **_stack("decoder", "mixer", "cross", "ffn"),
        },
        # Copies of the shared table, and a bias of cross-attention that old checkpoints hold and nothing reads.
        ignored=(
            r"(en|de)coder\.embed_tokens\.weight",
            r"decoder\..*\.EncDecAttention\.relative_attention_bias\.weight",
        ),
    ),
)
