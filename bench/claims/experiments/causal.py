"""Claims 10, 11 and 12: what a causal mask makes possible."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....models.transformer import build
from ..outcome import Claim, Part, Watch
from ..tools import decode, exponent, ids, listed, most, operations, preset

MODELS = ("gpt2", "llama3-8b", "mistral-7b")
TOKENS = 24


def mask(_: Watch) -> Sequence[Part]:
    """All tokens after i replaced, for every i: the logits of 0 … i must be the same bits."""
    parts = []
    for name in MODELS:
        config = preset(name)
        model, tokens = build(config), ids(config, TOKENS)
        other = (tokens + 1) % config.vocab
        index = torch.arange(TOKENS)
        rows = torch.where(index <= index[:, None], tokens, other)  # row i keeps 0 … i
        logits, changed = decode(model, tokens.expand(TOKENS, -1))[0], decode(model, rows)[0]
        kept = index <= index[:, None]
        same, moved = torch.equal(logits[kept], changed[kept]), bool((logits[~kept] != changed[~kept]).any())
        said = (
            f"{name}, {TOKENS} tokens, float32: logits up to i equal bit for bit: {same}; those after i differ: {moved}"
        )
        parts.append(Part("Token i is a function of tokens 0 … i alone, exactly", same and moved, said))
    return parts


def cache(_: Watch) -> Sequence[Part]:
    """Keys and values of a prefix, and the logits of cached steps, in float64."""
    parts = []
    for name in MODELS:
        config = preset(name)
        model, tokens = build(config).double(), ids(config, TOKENS)
        whole, full = decode(model, tokens)
        prefix = decode(model, tokens[:, : TOKENS // 2])[1]
        drift = max(
            most(long[:, :, : TOKENS // 2], short)
            for a, b in zip(full, prefix, strict=True)
            for long, short in zip(a, b, strict=True)
        )
        steps = torch.cat(list(stepped(model, tokens)), dim=1)
        gap = most(steps, whole) / float(whole.square().mean().sqrt())
        parts += [
            Part(
                "Keys and values of past tokens never change",
                drift < 1e-12,
                f"{name}: {TOKENS} tokens against the first {TOKENS // 2}: {drift:.1e}",
            ),
            Part(
                "Cached decoding equals the full pass",
                gap < 1e-11,
                f"{name}: largest difference / rms of logits {gap:.1e} in float64",
            ),
        ]
    return parts


def stepped(model: Any, tokens: Tensor) -> Any:
    """Logits token by token with a cache."""
    past: Sequence[Any] = ()
    for n in range(tokens.shape[1]):
        logits, past = decode(model, tokens[:, n : n + 1], past, n)
        yield logits


def generation(watch: Watch) -> Sequence[Part]:
    """Tokens that go through the model, operations, and time, with a cache and without."""
    config = preset("llama3-8b")
    model: Any = build(config)
    lengths = (16, 32, 64, 128)

    def with_cache(n: int) -> None:
        list(stepped(model, ids(config, n)))

    def without(n: int) -> None:
        tokens = ids(config, n)
        for end in range(1, n + 1):
            decode(model, tokens[:, :end])

    ways = {"with": with_cache, "without": without}
    seen = {name: {n: _tokens(model, way, n) for n in lengths} for name, way in ways.items()}
    work = {name: {n: operations(partial(way, n)) for n in lengths} for name, way in ways.items()}
    times = watch({name: partial(way, 64) for name, way in ways.items()}, 1.0)
    gain = min(times["without"]) / min(times["with"])
    return (
        Part(
            "Without a cache n tokens cost n(n+1)/2 token forwards, with one n",
            all(seen["without"][n] == n * (n + 1) // 2 and seen["with"][n] == n for n in lengths),
            f"tokens through the embedding: {listed(seen['without'], ',')} without; {listed(seen['with'], ',')} with",
        ),
        Part(
            "O(n²) operations without, O(n) with",
            exponent(work["without"]) > 1.8 and exponent(work["with"]) < 1.2,
            f"exponent of operations over n = {lengths[0]}…{lengths[-1]}: {exponent(work['without']):.2f} without, "
            f"{exponent(work['with']):.2f} with; time at n = 64: {gain:.1f}× (torch, {config.dim} wide)",
        ),
    )


def _tokens(model: Any, run: Any, n: int) -> int:
    """How many tokens the embedding sees."""
    counts: list[int] = []
    hook = model.embedding.register_forward_hook(lambda _m, inputs, _o: counts.append(inputs[0].numel()))
    run(n)
    hook.remove()
    return sum(counts)


CLAIMS = (
    Claim(key="10", statement="A causal mask: token i is a function of tokens 0 … i alone.", experiment=mask),
    Claim(
        key="11",
        statement="Keys and values of past tokens never change: cached decoding equals the full pass.",
        experiment=cache,
    ),
    Claim(
        key="12",
        statement="Generating n tokens costs O(n²) token forwards without a cache, O(n) with one.",
        experiment=generation,
    ),
)
