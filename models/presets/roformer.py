"""RoFormer."""

from collections.abc import Mapping
from typing import Any

from ..attention import Softmax
from ..config import ConfigError, ModelConfig
from ..embedding import Tokens
from ..family import Family
from ..feedforward import HF_ACTIVATIONS, MLP
from ..norm import LayerNorm
from ..position import Rope
from .bert import MODULES

PRESETS = (
    ModelConfig(
        name="roformer-base",
        source="Su et al. 2021; model card roformer_chinese_base",
        topology="encoder",
        dim=768,
        layers=12,
        heads=12,
        vocab=50_000,
        context=1536,
        embedding=Tokens(token_types=2, norm=LayerNorm(1e-12)),
        mixer=Softmax(),
        position=Rope(layout="interleaved"),
        norm=LayerNorm(1e-12),
        ffn=MLP("gelu", 3072),
        residual="post",
    ),
)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    dim, norm = hf["hidden_size"], LayerNorm(hf["layer_norm_eps"])
    for option, plain in {"rotary_value": False, "embedding_size": dim, "is_decoder": False}.items():
        if hf.get(option) not in (None, plain):
            raise ConfigError(f"config.json: {option} {hf[option]} is not supported, only {plain}")
    return ModelConfig(
        name="roformer",
        source="config.json",
        topology="encoder",
        dim=dim,
        layers=hf["num_hidden_layers"],
        heads=hf["num_attention_heads"],
        vocab=hf["vocab_size"],
        context=hf["max_position_embeddings"],
        embedding=Tokens(token_types=hf["type_vocab_size"], norm=norm),
        mixer=Softmax(),
        position=Rope(layout="interleaved"),
        norm=norm,
        ffn=MLP(HF_ACTIVATIONS[hf["hidden_act"]], hf["intermediate_size"]),
        residual="post",
    )


FAMILIES = (
    Family(
        model_type="roformer",
        config=_config,
        prefix="roformer.",
        modules={ours: theirs for ours, theirs in MODULES.items() if ours.startswith(("embedding", "stack.layers"))}
        | {"stack.embedding_norm": "embeddings.LayerNorm"},
        # A table of the sines and cosines that are computed here, and the heads of pre-training.
        ignored=(r"encoder\.embed_positions\.weight", r"cls\..*"),
    ),
)
