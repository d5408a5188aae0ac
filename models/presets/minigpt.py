"""A GPT small enough to be written out in NumPy, from a guided tour of the architecture."""

from ..attention import Softmax
from ..config import ModelConfig
from ..embedding import Tokens
from ..feedforward import MLP
from ..norm import LayerNorm
from ..position import Learned

PRESETS = (
    ModelConfig(
        name="mini-gpt",
        source="the NumPy Mini-GPT of the guided tour that this project answers",
        topology="decoder",
        dim=64,
        layers=2,
        heads=4,
        vocab=100,
        context=16,
        embedding=Tokens(),
        mixer=Softmax(),
        position=Learned(),
        norm=LayerNorm(1e-6),
        ffn=MLP("relu", 256),
        residual="pre",
        bias=False,
        tie_embeddings=False,
    ),
)
