"""The Transformer of 2017."""

from dataclasses import replace

from ..attention import Softmax
from ..config import ModelConfig
from ..embedding import Tokens
from ..feedforward import MLP
from ..norm import LayerNorm
from ..position import Sinusoidal

BASE = ModelConfig(
    name="transformer-base",
    source="Vaswani et al. 2017, table 3, base",
    topology="encoder-decoder",
    dim=512,
    layers=6,
    heads=8,
    vocab=37_000,
    context=512,
    embedding=Tokens(scale=True),
    mixer=Softmax(),
    position=Sinusoidal(),
    norm=LayerNorm(),
    ffn=MLP("relu", 2048),
    residual="post",
)

PRESETS = (
    BASE,
    replace(
        BASE,
        name="transformer-big",
        source="Vaswani et al. 2017, table 3, big",
        dim=1024,
        heads=16,
        ffn=MLP("relu", 4096),
    ),
)
