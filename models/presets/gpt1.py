"""GPT-1."""

from collections.abc import Mapping
from typing import Any

from ..attention import Softmax
from ..config import ModelConfig
from ..embedding import Tokens
from ..family import Family
from ..feedforward import HF_ACTIVATIONS, MLP
from ..norm import LayerNorm
from ..position import Learned
from .gpt2 import MODULES, hf_config

PRESETS = (
    ModelConfig(
        name="gpt1",
        source="Radford et al. 2018; model card openai-gpt",
        topology="decoder",
        dim=768,
        layers=12,
        heads=12,
        vocab=40_478,
        context=512,
        embedding=Tokens(),
        mixer=Softmax(),
        position=Learned(),
        norm=LayerNorm(),
        ffn=MLP("gelu_tanh", 3072),
        residual="post",
    ),
)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    """In this family "gelu" is the approximation by tanh, as in OpenAI's code."""
    activation = "gelu_tanh" if hf["afn"] == "gelu" else HF_ACTIVATIONS[hf["afn"]]
    return hf_config(hf, MLP(activation, 4 * hf["n_embd"]), "post")


FAMILIES = (
    Family(
        model_type="openai-gpt",
        config=_config,
        prefix="transformer.",
        modules={
            **{ours: theirs for ours, theirs in MODULES.items() if ours != "stack.final_norm"},
            "embedding.word": "tokens_embed",
            "stack.position.table": "positions_embed",
        },
        ignored=(r"h\.\d+\.attn\.bias", r"position_ids"),
    ),
)
