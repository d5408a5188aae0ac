"""PaLM."""

from ..attention import Softmax
from ..config import ModelConfig
from ..embedding import Tokens
from ..feedforward import GLU
from ..norm import LayerNorm
from ..position import Rope

PRESETS = (
    ModelConfig(
        name="palm-8b",
        source="Chowdhery et al. 2022, section 2 and table 1; the ε of its norms is not published",
        topology="decoder",
        dim=4096,
        layers=32,
        heads=16,
        vocab=256_000,
        context=2048,
        embedding=Tokens(),
        mixer=Softmax(kv_heads=1),
        position=Rope(layout="interleaved"),
        norm=LayerNorm(1e-6, shift=False),
        ffn=GLU("silu", 16_384),
        residual="parallel",
        bias=False,
        scale_logits=True,
    ),
)
