"""Mistral."""

from ..attention import Window
from ..config import ModelConfig
from ..embedding import Tokens
from ..feedforward import GLU
from ..norm import RMSNorm
from ..position import Rope

PRESETS = (
    ModelConfig(
        name="mistral-7b",
        source="Jiang et al. 2023; model card Mistral-7B-v0.1",
        topology="decoder",
        dim=4096,
        layers=32,
        heads=32,
        vocab=32_000,
        context=32_768,
        embedding=Tokens(),
        mixer=Window(window=4096, kv_heads=8),
        position=Rope(),
        norm=RMSNorm(1e-5),
        ffn=GLU("silu", 14_336),
        residual="pre",
        bias=False,
        tie_embeddings=False,
    ),
)
