"""Errors 1 to 8 of the source document, each run as it stands there."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....models.position import Rope, Sinusoidal
from ....models.presets import PRESETS
from ....models.rope_scaling import Yarn, exact_frequencies
from ....models.transformer import build
from ..outcome import Claim, Part, Watch
from ..tools import decode, ids, listed, preset
from .rope_scaling import slowed

SIZE, TOKENS = 64, 512


def _tables(positions: Tensor) -> tuple[Tensor, Tensor]:
    angles = torch.outer(positions.double(), exact_frequencies(SIZE, 10_000.0))
    return angles.cos(), angles.sin()


def mixture(x: Tensor, positions: Tensor) -> Tensor:
    """The text's code: tables by repeat_interleave, and rotate_half over two halves."""
    cos, sin = (table.repeat_interleave(2, dim=-1) for table in _tables(positions))
    a, b = x[..., : SIZE // 2], x[..., SIZE // 2 :]
    return x * cos + torch.cat((-b, a), dim=-1) * sin


def _layout(layout: Any) -> Any:
    encoding: Any = Rope(layout=layout).build(PRESETS["llama-7b"].scaled(dim=SIZE, heads=1)).double()
    return lambda x, positions: encoding.rotation(positions[None])(x[None, None])[0, 0]


def rope(_: Watch) -> Sequence[Part]:
    """Scores along a diagonal and norms under the text's code, and under each right layout."""
    q, k = (torch.randn(1, SIZE, dtype=torch.float64).expand(TOKENS, SIZE) for _ in range(2))
    at, spread, norms = torch.arange(TOKENS), {}, {}
    for name, turn in (("text", mixture), ("half", _layout("half")), ("interleaved", _layout("interleaved"))):
        scores, lengths = (turn(q, at + 5) * turn(k, at)).sum(-1), turn(q, at).norm(dim=-1)
        spread[name], norms[name] = float(scores.max() - scores.min()), float(lengths.max() - lengths.min())
    said = f"d = {SIZE}, {TOKENS} positions"
    return (
        Part("Its score depends on the distance alone", spread["text"] < 1e-6,
             f"scores along one diagonal differ by {listed(spread, '.2g')} ({said})"),
        Part("It keeps norms, as a rotation does", norms["text"] < 1e-6, f"norms differ by {listed(norms, '.2g')}"),
    )  # fmt: skip


def mask(_: Watch) -> Sequence[Part]:
    """The text's line, run."""
    with np.errstate(invalid="ignore"):
        made = np.triu(np.ones((5, 5)), k=1) * (-np.inf)
    below = made[np.tril_indices(5)]
    said = f"{int(np.isnan(below).sum())} of {below.size} values on and below the diagonal are NaN: 0 · -∞"
    return (Part("It is 0 on and below the diagonal", bool((below == 0).all()), said),)


def wiring(_: Watch) -> Sequence[Part]:
    """Whether the last operation of each layer is a norm: then its output, without gain and shift, is normalised."""
    found = {name: _normalised(name) for name in ("bert-base", "gpt1", "transformer-base", "gpt2", "gpt3-small")}
    said = ", ".join(f"{name} {'Post' if post else 'Pre'}-LN" for name, post in found.items())
    how = "are the outputs of a layer, freed of gain and shift, of mean 0 and variance 1?"
    return (Part("BERT is Pre-LN", not found["bert-base"], f"{how} {said}"),)


def _normalised(name: str) -> bool:
    config = preset(name)
    model: Any = build(config).double()
    stack, kept = getattr(model, "stack", None) or model.encoder, []
    hook = stack.layers[0].register_forward_hook(lambda _m, _i, output: kept.append(output[0]))
    tokens = ids(config, 16)
    mask = torch.ones_like(tokens)
    if config.topology == "decoder":
        decode(model, tokens)
    elif config.topology == "encoder":
        model(tokens, mask, torch.zeros_like(tokens))
    else:
        model.encode(tokens, mask)
    hook.remove()
    norm = stack.layers[0].ffn_joint.norm
    states = (kept[0] - norm.bias) / norm.weight
    return bool(states.mean(-1).abs().max() < 1e-6 and (states.var(-1, unbiased=False) - 1).abs().max() < 1e-3)


def wavelengths(_: Watch) -> Sequence[Part]:
    """Periods of the first and the last pair of the sinusoidal table, from how far the phase turns in a token."""
    config = PRESETS["transformer-base"]
    table = (
        Sinusoidal()
        .build(config)
        .double()(torch.zeros(1, 2, config.dim, dtype=torch.float64), torch.arange(2)[None])[0]
    )
    sines, cosines = table[1, 0::2], table[1, 1::2]
    periods = 2 * pi / torch.atan2(sines, cosines)
    said = f"a period is {periods[0]:.3f} tokens for i = 0, {periods[-1]:,.0f} for the last pair (d = {config.dim})"
    return (Part("i = 0 is the lowest frequency", bool(periods[0] > periods[-1]), said),)


def yarn(_: Watch) -> Sequence[Part]:
    """How much slower YaRN turns the fastest and the slowest pair."""
    fastest, slowest = slowed(Yarn(4.0, 2048))
    said = f"factor 4, d = 128: the fastest pair turns {fastest:.2f}× slower, the slowest {slowest:.2f}×"
    return (
        Part("Low frequencies are not interpolated", abs(slowest - 1) < 1e-6, said),
        Part("High frequencies are", fastest > 1 + 1e-6, said),
    )


def head(_: Watch) -> Sequence[Part]:
    """The width of a head of Llama-7B's query projection."""
    config = PRESETS["llama-7b"]
    with torch.device("meta"):
        mixer: Any = config.mixers[0].build(config, causal=True)
    size = mixer.q.out_features // config.heads
    return (
        Part("A head of Llama-7B has 64 dimensions", size == 64, f"{mixer.q.out_features} / {config.heads} = {size}"),
    )


def theta(_: Watch) -> Sequence[Part]:
    """The last frequencies of d = 128 at base 10000, and the end of the range that the text gives."""
    rates = exact_frequencies(128, 10_000.0)
    return (
        Part("θ₆₃ ≈ 0.000113 at base 10000, d = 128", abs(float(rates[63]) - 0.000113) < 5e-7,
             f"θ₆₃ = {rates[63]:.7f}, which is not 0.00011 either, if the 3 belongs to the next heading"),
        Part("Frequencies end at base⁻² ≈ 0.0001", abs(float(rates[-1]) / 10_000.0**-2 - 1) < 0.5,
             f"base⁻² = {10_000.0**-2:g}; the last is {rates[-1]:.4g} ≈ base⁻¹"),
    )  # fmt: skip


def variants(_: Watch) -> Sequence[Part]:
    """The frequencies of each model against those of YaRN with the growth of its context."""
    parts = []
    for name, factor, original in (("llama3.1-8b", 8.0, 8192), ("mistral-7b", 4.0, 8192)):
        config: Any = PRESETS[name]
        position, size = config.position, config.head_dim
        own, plain = position.scaling.table(size, position.base), exact_frequencies(size, position.base)
        yarn = Yarn(factor, original).table(size, position.base)
        off = float((own / yarn - 1).abs().max())
        rule = "plain RoPE" if torch.equal(own, plain) else type(position.scaling).__name__
        said = f"{name}, base {position.base:,.0f}: {rule}; frequencies are up to {off:.0%} from YaRN's"
        parts.append(Part(f"{name} scales RoPE by YaRN", off < 1e-3, said))
    return parts


CLAIMS = (
    Claim(key="E1", experiment=rope,
          statement="RoPE code: cos and sin by repeat_interleave(2) together with rotate_half over two halves.",
          right="Interleaved tables go with neighbouring pairs, halves with cat(t, t); the mixture is no rotation."),
    Claim(key="E2", experiment=mask, statement="np.triu(np.ones((n, n)), k=1) * (-np.inf) is a causal mask.",
          right="np.where, or torch.full(…).triu(1): 0 · -∞ is NaN."),
    Claim(key="E3", experiment=wiring, statement="The table of Pre-LN models names BERT.",
          right="BERT, GPT-1 and the 2017 Transformer are Post-LN; GPT-2 and 3, Llama and Mistral are Pre-LN."),
    Claim(key="E4", experiment=wavelengths, statement="Sinusoidal code: i = 0 is the lowest frequency.",
          right="i = 0 is the highest frequency, wavelength 2π; the last pair is the lowest."),
    Claim(key="E5", experiment=yarn, statement="YaRN does not interpolate low frequencies and interpolates high ones.",
          right="High frequencies are kept, low ones interpolated, with a ramp between and a temperature."),
    Claim(key="E6", experiment=head, statement="The head size of LLaMA-7B is 64.", right="128 = 4096 / 32."),
    Claim(key="E7", experiment=theta, statement="θ₆₃ ≈ 0.000113; frequencies go from base⁰ to base⁻² ≈ 0.0001.",
          right="θ₆₃ = 0.000115; they go to base^(-126/128), about base⁻¹ = 0.0001."),
    Claim(key="E8", experiment=variants, statement="Llama 3 and Mistral scale RoPE by YaRN.",
          right="Llama 3.1 has a rule of its own, by wavelength; Mistral 7B has plain RoPE; Qwen2 takes YaRN."),
)  # fmt: skip
