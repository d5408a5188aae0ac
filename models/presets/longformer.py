"""Longformer."""

from collections.abc import Mapping
from typing import Any

from ..config import ConfigError, Mixer, ModelConfig
from ..embedding import Tokens
from ..family import Family
from ..feedforward import HF_ACTIVATIONS, MLP
from ..longformer import Longformer
from ..norm import LayerNorm
from ..position import Learned
from .bert import MODULES, with_or_without_pooler

PRESETS = (
    ModelConfig(
        name="longformer-base",
        source="Beltagy et al. 2020; model card allenai/longformer-base-4096",
        topology="encoder",
        dim=768,
        layers=12,
        heads=12,
        vocab=50_265,
        context=4096,
        embedding=Tokens(token_types=1, norm=LayerNorm(1e-5)),
        mixer=Longformer(window=512),
        position=Learned(offset=2),
        norm=LayerNorm(1e-5),
        ffn=MLP("gelu", 3072),
        residual="post",
        pooler=True,
    ),
)


def _mixers(window: int | list[int], layers: int) -> Mixer | tuple[Mixer, ...]:
    """Their `attention_window` is one number, or one a layer."""
    if isinstance(window, int):
        return Longformer(window=window)
    if len(window) != layers:
        raise ConfigError(f"config.json: attention_window has {len(window)} entries for {layers} layers")
    return tuple(Longformer(window=each) for each in window)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    """Theirs counts positions from `pad_token_id` + 1, and its table has that many rows more than tokens fit in."""
    norm, offset = LayerNorm(hf["layer_norm_eps"]), hf["pad_token_id"] + 1
    return ModelConfig(
        name="longformer",
        source="config.json",
        topology="encoder",
        dim=hf["hidden_size"],
        layers=hf["num_hidden_layers"],
        heads=hf["num_attention_heads"],
        vocab=hf["vocab_size"],
        context=hf["max_position_embeddings"] - offset,
        embedding=Tokens(token_types=hf["type_vocab_size"], norm=norm),
        mixer=_mixers(hf["attention_window"], hf["num_hidden_layers"]),
        position=Learned(offset=offset),
        norm=norm,
        ffn=MLP(HF_ACTIVATIONS[hf["hidden_act"]], hf["intermediate_size"]),
        residual="post",
        pooler=True,
    )


FAMILIES = (
    Family(
        model_type="longformer",
        config=_config,
        prefix="longformer.",
        modules={
            **MODULES,
            "pooler.linear": "pooler.dense",
            "stack.layers.{i}.mixer.q_global": "encoder.layer.{i}.attention.self.query_global",
            "stack.layers.{i}.mixer.k_global": "encoder.layer.{i}.attention.self.key_global",
            "stack.layers.{i}.mixer.v_global": "encoder.layer.{i}.attention.self.value_global",
        },
        # The language-model head comes after the states that this model returns.
        ignored=(r"embeddings\.position_ids", r"lm_head\..*"),
        refine=with_or_without_pooler,
    ),
)
