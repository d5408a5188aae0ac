"""Rotary positions as Hugging Face's config.json describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from .config import ConfigError
from .position import Rope
from .rope_scaling import DynamicNTK, Linear, Llama3, LongRope, RopeScaling, Yarn

ORIGINAL = "original_max_position_embeddings"


def hf_rope(hf: Mapping[str, Any], layout: Literal["half", "interleaved"] = "half", fraction: float = 1.0) -> Rope:
    """The encoding of a config.json, from `rope_parameters` or, before version 5, `rope_theta` and `rope_scaling`.

    `fraction` is the part of a head that turns where the file does not tell.

    Raises:
        ConfigError: a kind of scaling that is not known.
    """
    given = {**(hf.get("rope_scaling") or {}), **(hf.get("rope_parameters") or {})}
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind not in _SCALINGS:
        raise ConfigError(f"config.json: RoPE scaling {kind!r} is none of {', '.join(_SCALINGS)}")
    # Phi-3 keeps the trained length beside the scaling and not in it.
    length = given.get(ORIGINAL) or hf.get(ORIGINAL) or hf["max_position_embeddings"]
    return Rope(
        base=given.get("rope_theta", hf.get("rope_theta", hf.get("rotary_emb_base", 10_000.0))),
        layout=layout,
        fraction=given.get("partial_rotary_factor", hf.get("partial_rotary_factor", hf.get("rotary_pct", fraction))),
        scaling=_SCALINGS[kind](given, length, hf["max_position_embeddings"] / length),
    )


def _yarn(rope: Mapping[str, Any], original: int, growth: float) -> RopeScaling:
    factor = rope.get("factor") or growth
    attention = rope.get("attention_factor")
    if attention is None and rope.get("mscale") and rope.get("mscale_all_dim"):  # DeepSeek-V2
        of = Yarn(factor, original).root
        attention = of(rope["mscale"]) / of(rope["mscale_all_dim"])
    return Yarn(
        factor,
        original,
        fast=rope.get("beta_fast") or 32.0,
        slow=rope.get("beta_slow") or 1.0,
        attention=attention,
        truncate=rope.get("truncate", True),
    )


def _longrope(rope: Mapping[str, Any], original: int, growth: float) -> RopeScaling:
    factor = rope.get("factor") or growth
    return LongRope(
        tuple(rope["short_factor"]), tuple(rope["long_factor"]), factor, original, rope.get("attention_factor")
    )


_SCALINGS: dict[str, Callable[[Mapping[str, Any], int, float], RopeScaling]] = {
    "default": lambda rope, original, growth: RopeScaling(),
    "linear": lambda rope, original, growth: Linear(rope["factor"]),
    "dynamic": lambda rope, original, growth: DynamicNTK(rope["factor"], original),
    "yarn": _yarn,
    "llama3": lambda rope, original, growth: Llama3(
        rope["factor"], original, rope["low_freq_factor"], rope["high_freq_factor"]
    ),
    "longrope": _longrope,
}
