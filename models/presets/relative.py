"""Relative positions that a layer learns: Shaw et al. and Transformer-XL."""

from dataclasses import replace

from ..config import Bias, ModelConfig
from ..embedding import Tokens
from ..feedforward import MLP
from ..norm import LayerNorm
from ..position import NoPosition
from ..relative_attention import Shaw, TransformerXL
from .transformer import BASE

PRESETS = (
    replace(
        BASE,
        name="shaw",
        source="Shaw et al. 2018, section 4.1, the base model",
        vocab=32_768,
        mixer=Shaw(clip=16),
        position=NoPosition(),
        ffn=MLP("relu", 1024),
    ),
    # With a softmax over all words where the paper's is adaptive: at the base size both have the same matrices.
    ModelConfig(
        name="transformer-xl",
        source="Dai et al. 2019, table 1, Standard (151M); wt103_base of the authors' code",
        topology="decoder",
        dim=410,
        layers=16,
        heads=10,
        vocab=267_735,
        context=150,
        embedding=Tokens(scale=True),
        mixer=TransformerXL(),
        position=NoPosition(),
        norm=LayerNorm(),
        ffn=MLP("relu", 2100),
        residual="post",
        bias=Bias(ffn=True, head=True),
    ),
)
