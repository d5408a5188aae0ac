"""Claims 2, 3 and 21, and error 9: parameters counted on the modules themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ....models.attention import Softmax
from ....models.cost import parameters
from ....models.feedforward import MLP
from ....models.presets import PRESETS
from ....models.transformer import build
from ..outcome import Claim, Part, Watch
from ..tools import decode, ids, listed, weights

WIDTH = 512
SQUARE = WIDTH**2


def _attention(heads: int) -> int:
    config = PRESETS["transformer-base"].scaled(dim=WIDTH, heads=heads)
    return weights(Softmax().build(config, causal=False))


def heads(_: Watch) -> Sequence[Part]:
    """Attention of width 512 with 1, 8, 16 and 64 heads."""
    counts = {count: _attention(count) for count in (1, 8, 16, 64)}
    said = f"weights by heads: {listed(counts, ',')}"
    return (Part("4·512² = 1,048,576 weights for any number of heads", set(counts.values()) == {4 * SQUARE}, said),)


def single_head(_: Watch) -> Sequence[Part]:
    """The same with one head."""
    count = _attention(1)
    return (Part("A single head has 3·512² weights", count == 3 * SQUARE, f"{count:,} = {count / SQUARE:g}·512²"),)


def feed_forward(_: Watch) -> Sequence[Part]:
    """The layer 512 → 2048 → 512, and the shares of GPT-2's and GPT-3 Small's parameters."""
    config = PRESETS["transformer-base"]
    layer = MLP("relu", 2048).build(config)
    count = sum(parameter.numel() for parameter in layer.parameters())
    small = PRESETS["gpt3-small"]
    with torch.device("meta"):
        model: Any = build(replace(small, layers=1))
    block = model.stack.layers[0]
    ffn, mixer = weights(block.ffn), weights(block.mixer)
    whole, longer = parameters(replace(small, context=1024)), parameters(small)
    return (
        Part("512 → 2048 → 512 has about 2.1 M", round(count / 1e6, 1) == 2.1, f"{count:,} with biases"),
        Part(
            "The feed-forward layer is two thirds of a block of GPT-3 Small",
            abs(ffn / (ffn + mixer) - 2 / 3) < 0.01,
            f"{ffn:,} of {ffn + mixer:,} weights: {ffn / (ffn + mixer):.1%}",
        ),
        Part(
            "The whole has about 124 M",
            round(whole / 1e6) == 124,
            f"{whole:,} with the 1024 positions of the text, {longer:,} with the published 2048",
        ),
    )


def mini_gpt(_: Watch) -> Sequence[Part]:
    """The model of the text: its logits, and what its own counter leaves out."""
    config = PRESETS["mini-gpt"]
    model = build(config)
    logits, _cache = decode(model, ids(config, 8, batch=2))
    total, counted = parameters(config), _counted(model)
    return (
        Part("Logits have shape (2, 8, 100)", logits.shape == (2, 8, 100), f"{tuple(logits.shape)}"),
        Part(
            "The printed total counts every parameter",
            counted == total,
            f"the text's loop finds {counted:,} of {total:,}: it looks into the blocks and not into the last LayerNorm",
        ),
    )


def _counted(model: nn.Module) -> int:
    """What the text's loop counts: arrays of the model itself, and those of its blocks."""
    return sum(p.numel() for name, p in model.named_parameters() if not name.startswith("stack.final_norm"))


CLAIMS = (
    Claim(
        key="2",
        statement="Multi-head attention of width 512 has 4·512² = 1,048,576 parameters for any number of heads.",
        experiment=heads,
    ),
    Claim(
        key="3",
        statement="The layer 512 → 2048 → 512 has about 2.1 M parameters; in GPT-3 Small the feed-forward layers hold "
        "two thirds of a block, and the whole has about 124 M.",
        experiment=feed_forward,
    ),
    Claim(
        key="21",
        statement="The Mini-GPT in NumPy (100, 64, 4, 2, 16, 256): its parameters, and logits of shape (2, 8, 100).",
        experiment=mini_gpt,
    ),
    Claim(
        key="E9",
        statement="A single head has 3·512² parameters, eight heads 4·512².",
        right="W_O is there with one head too: 4·512² in both.",
        experiment=single_head,
    ),
)
