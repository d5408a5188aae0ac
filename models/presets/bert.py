"""BERT."""

from collections.abc import Mapping
from typing import Any

from ..attention import Softmax
from ..config import ModelConfig
from ..embedding import Tokens
from ..family import Family
from ..feedforward import HF_ACTIVATIONS, MLP
from ..norm import LayerNorm
from ..position import Learned

PRESETS = (
    ModelConfig(
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
    ),
)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
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
    )


FAMILIES = (
    Family(
        model_type="bert",
        config=_config,
        prefix="bert.",
        modules={
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
        },
        # The pooler and the pre-training heads come after the states that this model returns.
        ignored=(r"embeddings\.position_ids", r"pooler\..*", r"cls\..*"),
    ),
)
