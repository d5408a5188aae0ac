"""Claims 13 and 18: the size of the cache, and what fewer key heads save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from ....models.attention import Softmax
from ....models.config import ModelConfig
from ....models.cost import cache_bytes, flops
from ....models.presets import PRESETS
from ....models.transformer import build
from ..outcome import Claim, Part, Watch
from ..tools import decode, ids, layer, preset, speed

TOKENS = 4096


def size(_: Watch) -> Sequence[Part]:
    """The formula against the tensors of a real cache, and at the published sizes."""
    parts = []
    for name in ("llama-7b", "llama3-8b", "palm-8b"):
        config = preset(name)
        present = decode(build(config), ids(config, 50, batch=3))[1]
        real = sum(tensor.nbytes for layer in present for tensor in layer)
        formula = 2 * config.layers * _key_heads(config) * config.head_dim * 50 * 3 * 4
        said = f"{name}, small, batch 3, 50 tokens, float32: {real:,} bytes in the tensors, {formula:,} by the formula"
        parts.append(Part("2·layers·kv_heads·head_dim·n·bytes", real == formula, said))
    whole = _bytes("llama-7b")
    shares = {name: _share(name) for name in ("llama2-70b", "llama3-8b", "palm-8b")}
    return (
        *parts,
        Part("2.0 GiB for Llama-7B at 4096 tokens in fp16", round(whole / 2**30, 1) == 2.0, f"{whole / 2**30:.3f} GiB"),
        Part(
            "GQA and MQA divide it by heads / kv_heads",
            all(found == expected for found, expected in shares.values()),
            "; ".join(
                f"{name} divided by {found:g}, heads / kv_heads = {expected:g}"
                for name, (found, expected) in shares.items()
            ),
        ),
    )


def _bytes(name: str) -> int:
    return cache_bytes(PRESETS[name], batch=1, tokens=TOKENS, bytes_per_number=2)


def _key_heads(config: ModelConfig) -> int:
    (mixer,) = set(config.mixers)
    return cast(Softmax, mixer).groups(config.heads)


def _share(name: str) -> tuple[float, float]:
    """How much less a preset keeps than with a key head for each query head, and what the heads say."""
    config = PRESETS[name]
    full = cache_bytes(replace(config, mixer=Softmax()), batch=1, tokens=TOKENS, bytes_per_number=2)
    return full / _bytes(name), config.heads / _key_heads(config)


def prefill(watch: Watch) -> Sequence[Part]:
    """Llama-7B's shape with 32, 8 and 1 key heads: cache, operations of a prefill, and the time of a smaller layer."""
    config = PRESETS["llama-7b"]
    kinds = {"MHA": Softmax(), "GQA": Softmax(kv_heads=8), "MQA": Softmax(kv_heads=1)}
    sizes = {"batch": 1, "sequence": TOKENS}
    work = {name: flops(replace(config, mixer=mixer), "forward", sizes) for name, mixer in kinds.items()}
    caches = {
        name: cache_bytes(replace(config, mixer=mixer), batch=1, tokens=TOKENS, bytes_per_number=2)
        for name, mixer in kinds.items()
    }
    calls = {name: layer(mixer, dim=512, heads=16)(1024) for name, mixer in kinds.items()}
    times = watch(calls)
    return (
        Part(
            "MQA and GQA keep fewer bytes",
            caches["MQA"] < caches["GQA"] < caches["MHA"],
            "; ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in caches.items())
            + f" at {TOKENS} tokens in fp16",
        ),
        Part(
            "They need nearly the same operations in a prefill",
            work["MQA"] / work["MHA"] > 0.8,
            f"of MHA's operations at {TOKENS} tokens, GQA {work['GQA'] / work['MHA']:.1%}, MQA "
            f"{work['MQA'] / work['MHA']:.1%}; speed of one layer (512 wide, 1024 tokens): {_speeds(times)}",
        ),
    )


def _speeds(times: Mapping[str, tuple[float, ...]]) -> str:
    found = {name: speed(times["MHA"], times[name]) for name in ("GQA", "MQA")}
    return ", ".join(f"{name} {ratio} ({word})" for name, (word, ratio) in found.items())


CLAIMS = (
    Claim(
        key="13",
        statement="A cache has 2·layers·kv_heads·head_dim·n·bytes: 2.0 GiB for Llama-7B at 4096 tokens in fp16; GQA "
        "and MQA divide it by heads / kv_heads.",
        experiment=size,
    ),
    Claim(
        key="18",
        statement="MQA and GQA: fewer cache bytes, nearly the same compute in prefill.",
        experiment=prefill,
    ),
)
