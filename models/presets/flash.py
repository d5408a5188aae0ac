"""FlashAttention's algorithm in GPT-2, the model that its authors measured it with."""

from dataclasses import replace

from ..tiled import Tiled
from .gpt2 import GPT2

PRESETS = (
    replace(
        GPT2,
        name="flash",
        source="Dao et al. 2022, section 4.1: GPT-2 small with tiled attention",
        mixer=Tiled(block=128),
    ),
)
