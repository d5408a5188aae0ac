"""GPT-3."""

from dataclasses import replace

from ..attention import Softmax
from ..feedforward import MLP
from ..window import Window
from .gpt2 import GPT2

# Layers alternate between dense and locally banded attention (section 2.1). The width of the band is not published:
# 128 is that of the Sparse Transformer, to which the paper refers (Child et al. 2019, section 7.2).
SMALL = replace(
    GPT2,
    name="gpt3-small",
    source="Brown et al. 2020, table 2.1, Small",
    context=2048,
    mixer=(Softmax(), Window(window=128)),
)

PRESETS = (
    SMALL,
    replace(
        SMALL,
        name="gpt3-175b",
        source="Brown et al. 2020, table 2.1, 175B",
        dim=12_288,
        layers=96,
        heads=96,
        ffn=MLP("gelu_tanh", 4 * 12_288),
    ),
)
