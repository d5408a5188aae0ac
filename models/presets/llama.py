"""Llama."""

from ..attention import Softmax
from ..config import ModelConfig
from ..embedding import Tokens
from ..feedforward import GLU
from ..norm import RMSNorm
from ..position import Rope

PRESETS = (
    ModelConfig(
        name="llama3-8b",
        source="Grattafiori et al. 2024; model card Meta-Llama-3-8B",
        topology="decoder",
        dim=4096,
        layers=32,
        heads=32,
        vocab=128_256,
        context=8192,
        embedding=Tokens(),
        mixer=Softmax(kv_heads=8),
        position=Rope(base=500_000.0),
        norm=RMSNorm(1e-5),
        ffn=GLU("silu", 14_336),
        residual="pre",
        bias=False,
        tie_embeddings=False,
    ),
)
