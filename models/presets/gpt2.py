"""GPT-2."""

from ..attention import Softmax
from ..config import ModelConfig
from ..embedding import Tokens
from ..feedforward import MLP
from ..norm import LayerNorm
from ..position import Learned

PRESETS = (
    ModelConfig(
        name="gpt2",
        source="Radford et al. 2019, the smallest model; model card gpt2",
        topology="decoder",
        dim=768,
        layers=12,
        heads=12,
        vocab=50_257,
        context=1024,
        embedding=Tokens(),
        mixer=Softmax(),
        position=Learned(),
        norm=LayerNorm(),
        ffn=MLP("gelu_tanh", 3072),
        residual="pre",
    ),
)
