"""GPT-J."""

from collections.abc import Mapping
from typing import Any

from ..attention import Softmax
from ..config import Bias, ModelConfig
from ..embedding import Tokens
from ..family import Family
from ..feedforward import HF_ACTIVATIONS, MLP
from ..norm import LayerNorm
from ..position import Rope

BIAS = Bias(ffn=True, head=True)

PRESETS = (
    ModelConfig(
        name="gpt-j-6b",
        source="Wang and Komatsuzaki 2021; model card gpt-j-6b",
        topology="decoder",
        dim=4096,
        layers=28,
        heads=16,
        vocab=50_400,
        context=2048,
        embedding=Tokens(),
        mixer=Softmax(),
        position=Rope(layout="interleaved", fraction=0.25),
        norm=LayerNorm(),
        ffn=MLP("gelu_tanh", 16_384),
        residual="parallel",
        bias=BIAS,
        tie_embeddings=False,
    ),
)


def _config(hf: Mapping[str, Any]) -> ModelConfig:
    dim, heads = hf["n_embd"], hf["n_head"]
    return ModelConfig(
        name="gptj",
        source="config.json",
        topology="decoder",
        dim=dim,
        layers=hf["n_layer"],
        heads=heads,
        vocab=hf["vocab_size"],
        context=hf["n_positions"],
        embedding=Tokens(),
        mixer=Softmax(),
        position=Rope(layout="interleaved", fraction=hf["rotary_dim"] * heads / dim),
        norm=LayerNorm(hf["layer_norm_epsilon"]),
        ffn=MLP(HF_ACTIVATIONS[hf["activation_function"]], hf.get("n_inner") or 4 * dim),
        residual="parallel",
        bias=BIAS,
        tie_embeddings=hf.get("tie_word_embeddings", False),
    )


FAMILIES = (
    Family(
        model_type="gptj",
        config=_config,
        prefix="transformer.",
        modules={
            "embedding.word": "wte",
            "stack.layers.{i}.mixer.q": "h.{i}.attn.q_proj",
            "stack.layers.{i}.mixer.k": "h.{i}.attn.k_proj",
            "stack.layers.{i}.mixer.v": "h.{i}.attn.v_proj",
            "stack.layers.{i}.mixer.o": "h.{i}.attn.out_proj",
            "stack.layers.{i}.norm": "h.{i}.ln_1",
            "stack.layers.{i}.ffn.up": "h.{i}.mlp.fc_in",
            "stack.layers.{i}.ffn.down": "h.{i}.mlp.fc_out",
            "stack.final_norm": "ln_f",
            "head.linear": "lm_head",
        },
        ignored=(r"h\.\d+\.attn\.(masked_bias|bias|embed_positions)",),
    ),
)
