"""Ring attention in a decoder of GPT-2's size."""

from dataclasses import replace

from ..ring import Ring
from .gpt2 import GPT2

PRESETS = (
    replace(
        GPT2,
        name="ring",
        source="Liu et al. 2023 (Ring Attention): its attention in GPT-2 small; one process, so tiled, in an export",
        mixer=Ring(block=128),
    ),
)
