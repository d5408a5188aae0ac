"""Claim 8: Post-LN against Pre-LN, by depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ....models.transformer import build
from ..outcome import Claim, Part, Watch
from ..tools import decode, ids, preset

DEEP, SHALLOW = 24, 6
TOKENS = 64


def profile(residual: str, layers: int = DEEP) -> tuple[list[float], list[float], float]:
    """The rms of the residual stream after each layer, the norm of the loss's gradient there, and the norm of the
    gradient of the last layer's feed-forward weights."""
    config = preset("gpt2", layers=layers, residual=residual)
    model: Any = build(config).requires_grad_(True)
    streams: list[Tensor] = []

    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        output[0].retain_grad()
        streams.append(output[0])

    for layer in model.stack.layers:
        layer.register_forward_hook(keep)
    tokens = ids(config, TOKENS, batch=2)
    with torch.enable_grad():
        logits, _ = decode(model, tokens)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        torch.autograd.backward(loss)
    gradients = [float(stream.grad.norm()) for stream in streams if stream.grad is not None]
    last = float(model.stack.layers[-1].ffn.down.weight.grad.norm())
    return [float(stream.square().mean().sqrt()) for stream in streams], gradients, last


def experiment(_: Watch) -> Sequence[Part]:
    """Decoders of 6 and of 24 layers with each wiring, at initialisation."""
    (post, post_gradient, post_last), (pre, pre_gradient, pre_last) = profile("post"), profile("pre")
    back = {"post": post_gradient[0] / post_gradient[-1], "pre": pre_gradient[0] / pre_gradient[-1]}
    kept = {"post": post_last / profile("post", SHALLOW)[2], "pre": pre_last / profile("pre", SHALLOW)[2]}
    where = f"{DEEP} layers of 64, {TOKENS} tokens, initial weights"
    return (
        Part(
            "Post-LN normalises the residual stream in every layer",
            max(post) / min(post) < 1.5,
            f"rms after layers 1 and {DEEP}: {post[0]:.2f}, {post[-1]:.2f} ({where})",
        ),
        Part(
            "In Pre-LN it passes no norm, and grows with depth",
            pre[-1] > 1.5 * pre[0],
            f"rms after layers 1 and {DEEP}: {pre[0]:.2f}, {pre[-1]:.2f}",
        ),
        Part(
            "Pre-LN's gradients near the output shrink with depth, Post-LN's do not, which is why it needs warm-up",
            kept["pre"] < 0.75 < kept["post"],
            f"gradient of the last feed-forward weights, {DEEP} layers over {SHALLOW}: {kept['post']:.2f} post, "
            f"{kept['pre']:.2f} pre",
        ),
        Part(
            "With Post-LN the gradient vanishes or explodes on its way back through the layers",
            not 0.1 < back["post"] < 10,
            f"gradient at layer 1 over that at layer {DEEP}: {back['post']:.2f} post, {back['pre']:.2f} pre",
        ),
    )


CLAIMS = (
    Claim(
        key="8",
        statement="Post-LN sends the residual path through every norm, so deep networks need warm-up and gradients "
        "vanish or explode; in Pre-LN they pass unhindered.",
        experiment=experiment,
    ),
)
