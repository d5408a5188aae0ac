"""BERT."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ..attention import Softmax
from ..config import ConfigError, ModelConfig
from ..embedding import Tokens
from ..family import Family
from ..feedforward import HF_ACTIVATIONS, MLP
from ..norm import LayerNorm
from ..position import Learned

BASE = ModelConfig(
    name="bert-base",
    source="Devlin et al. 2019; model card bert-base-uncased",
    topology="encoder",
    dim=768,
    layers=12,
    heads=12,
    vocab=30_522,
    context=512,
    embedding=Tokens(token_types=2, norm=LayerNorm(1e-12)),
    mixer=Softmax(),
    position=Learned(),
    norm=LayerNorm(1e-12),
    ffn=MLP("gelu", 3072),
    residual="post",
    pooler=True,
)

PRESETS = (
    BASE,
    replace(
        BASE,
        name="bert-large",
        source="Devlin et al. 2019; model card bert-large-uncased",
        dim=1024,
        layers=24,
        heads=16,
        ffn=MLP("gelu", 4096),
    ),
)


def refuse_groups(hf: Mapping[str, Any], heads: int) -> None:
    """A family without grouped queries cannot have a checkpoint with them: the option would be ignored."""
    kv_heads = hf.get("num_key_value_heads", heads)
    if kv_heads != heads:
        family = hf["model_type"]
        raise ConfigError(f"config.json: num_key_value_heads {kv_heads} with {heads} heads: {family} has no groups")


def with_or_without_pooler(config: ModelConfig, stored: Collection[str]) -> ModelConfig:
    """A checkpoint saved from a masked language model has no pooler, and config.json does not say so."""
    return replace(config, pooler=any(name.startswith("pooler.") for name in stored))


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    refuse_groups(hf, hf["num_attention_heads"])
    norm = LayerNorm(hf["layer_norm_eps"])
    return ModelConfig(
        name="bert",
        source="config.json",
        topology="encoder",
        dim=hf["hidden_size"],
        layers=hf["num_hidden_layers"],
        heads=hf["num_attention_heads"],
        vocab=hf["vocab_size"],
        context=hf["max_position_embeddings"],
        embedding=Tokens(token_types=hf["type_vocab_size"], norm=norm),
        mixer=Softmax(),
        position=Learned(),
        norm=norm,
        ffn=MLP(HF_ACTIVATIONS[hf["hidden_act"]], hf["intermediate_size"]),
        residual="post",
        pooler=True,
    )


MODULES = {
    "embedding.word": "embeddings.word_embeddings",
    "embedding.types": "embeddings.token_type_embeddings",
    "stack.position.table": "embeddings.position_embeddings",
    "stack.embedding_norm": "embeddings.LayerNorm",
    "stack.layers.{i}.mixer.q": "encoder.layer.{i}.attention.self.query",
    "stack.layers.{i}.mixer.k": "encoder.layer.{i}.attention.self.key",
    "stack.layers.{i}.mixer.v": "encoder.layer.{i}.attention.self.value",
    "stack.layers.{i}.mixer.o": "encoder.layer.{i}.attention.output.dense",
    "stack.layers.{i}.mixer_joint.norm": "encoder.layer.{i}.attention.output.LayerNorm",
    "stack.layers.{i}.ffn.up": "encoder.layer.{i}.intermediate.dense",
    "stack.layers.{i}.ffn.down": "encoder.layer.{i}.output.dense",
    "stack.layers.{i}.ffn_joint.norm": "encoder.layer.{i}.output.LayerNorm",
}

FAMILIES = (
    Family(
        model_type="bert",
        config=_config,
        prefix="bert.",
        modules={**MODULES, "pooler.linear": "pooler.dense"},
        # The pre-training heads come after the states that this model returns.
        ignored=(r"embeddings\.position_ids", r"cls\..*"),
        refine=with_or_without_pooler,
    ),
)
