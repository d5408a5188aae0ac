"""Mixers that read only part of the keys: what they read, and the same model reading all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Protocol, runtime_checkable

from .config import Mixer, ModelConfig


@runtime_checkable
class Sparse(Protocol):
    """A mixer that leaves keys out."""

    @property
    def reads(self) -> str:
        """What a token reads, with its size: "a window of 256 tokens"."""

    @property
    def dense(self) -> Mixer:
        """The mixer that reads every key in its place."""


def reads(config: ModelConfig) -> str | None:
    """What the sparse layers of a model read, and how many those are; None when every layer reads all keys."""
    counts = Counter(mixer.reads for mixer in config.mixers if isinstance(mixer, Sparse))
    if not counts:
        return None
    return " and ".join(
        words if count == config.layers else f"{words} in {count} of {config.layers} layers"
        for words, count in counts.items()
    )


def dense(config: ModelConfig) -> ModelConfig:
    """The same model with attention to every key in all layers."""
    return replace(config, mixer=tuple(mixer.dense if isinstance(mixer, Sparse) else mixer for mixer in config.mixers))
