"""BigBird."""

from collections.abc import Mapping
from typing import Any

from ..attention import Softmax
from ..bigbird import BigBird
from ..config import ConfigError, Mixer, ModelConfig
from ..embedding import Tokens
from ..family import Family
from ..feedforward import HF_ACTIVATIONS, MLP
from ..norm import LayerNorm
from ..position import Learned
from .bert import MODULES, with_or_without_pooler


def _mixers(block: int, random: int, layers: int) -> tuple[Mixer, ...]:
    """The random blocks differ from layer to layer."""
    return tuple(BigBird(block=block, random=random, seed=layer) for layer in range(layers))


PRESETS = (
    ModelConfig(
        name="bigbird-base",
        source="Zaheer et al. 2020; model card google/bigbird-roberta-base",
        topology="encoder",
        dim=768,
        layers=12,
        heads=12,
        vocab=50_358,
        context=4096,
        embedding=Tokens(token_types=2, norm=LayerNorm(1e-12)),
        mixer=_mixers(block=64, random=3, layers=12),
        position=Learned(),
        norm=LayerNorm(1e-12),
        ffn=MLP("gelu_tanh", 3072),
        residual="post",
        pooler=True,
    ),
)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    for option, plain in {"use_bias": True, "rescale_embeddings": False, "is_decoder": False}.items():
        if hf.get(option, plain) != plain:
            raise ConfigError(f"config.json: {option} {hf[option]} is not supported, only {plain}")
    norm, layers = LayerNorm(hf["layer_norm_eps"]), hf["num_hidden_layers"]
    sparse = hf["attention_type"] == "block_sparse"
    return ModelConfig(
        name="big_bird",
        source="config.json",
        topology="encoder",
        dim=hf["hidden_size"],
        layers=layers,
        heads=hf["num_attention_heads"],
        vocab=hf["vocab_size"],
        context=hf["max_position_embeddings"],
        embedding=Tokens(token_types=hf["type_vocab_size"], norm=norm),
        mixer=_mixers(hf["block_size"], hf["num_random_blocks"], layers) if sparse else Softmax(),
        position=Learned(),
        norm=norm,
        ffn=MLP(HF_ACTIVATIONS[hf["hidden_act"]], hf["intermediate_size"]),
        residual="post",
        pooler=True,
    )


FAMILIES = (
    Family(
        model_type="big_bird",
        config=_config,
        prefix="bert.",
        modules={**MODULES, "pooler.linear": "pooler"},
        # The pre-training heads come after the states that this model returns.
        ignored=(r"embeddings\.(position|token_type)_ids", r"cls\..*"),
        refine=with_or_without_pooler,
    ),
)
