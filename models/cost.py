"""What a model costs: parameters, floating-point operations and cache bytes, from its structure alone."""

from __future__ import annotations

from math import prod
from typing import Protocol, runtime_checkable

import torch

from .config import ConfigError, ModelConfig
from .signature import Sizes
from .sparsity import dense, reads
from .transformer import build


@runtime_checkable
class SharesWork(Protocol):
    """A mixer with work that a call does once, whatever its batch."""

    def shared_flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """Operations that do not grow with the batch, left out of `flops`."""


def parameters(config: ModelConfig) -> int:
    """The number of weights, tied ones once: counted on the module itself, built without memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(config).parameters())


def flops(config: ModelConfig, phase: str, sizes: Sizes) -> int:
    """Operations of one call of a phase at these sizes (axes of its signature); a multiply-add is two.

    Counts what the modules compute, matrices only: norms, activations and softmax are left out, as in torch's counter.
    """
    batch, tokens, past = sizes["batch"], sizes["sequence"], sizes.get("past", 0)
    if config.topology == "encoder":
        pooler = 2 * config.dim**2 if config.pooler else 0
        return batch * (_stack(config, tokens, tokens) + pooler)
    head = 2 * tokens * config.dim * config.vocab
    if config.topology == "decoder":
        return batch * (_stack(config, tokens, past + tokens) + head) + _shared(config, tokens, past + tokens)
    if phase == "encode":
        return batch * (_stack(config, tokens, tokens) + _cross_keys(config, tokens))
    source = sizes["source"]
    decode = _stack(config, tokens, past + tokens) + _cross(config, tokens, source) + head
    encode = _stack(config, source, source) + _cross_keys(config, source)
    return batch * (decode if phase == "step" else decode + encode)


def dense_flops(config: ModelConfig, phase: str, sizes: Sizes) -> int | None:
    """The same if every layer read all keys; None for a model whose layers do."""
    return flops(dense(config), phase, sizes) if reads(config) else None


def cache_bytes(config: ModelConfig, *, batch: int, tokens: int, bytes_per_number: int) -> int:
    """Bytes that a decoder keeps for `tokens` past tokens.

    Raises:
        ConfigError: the model keeps nothing between steps.
    """
    if config.topology == "encoder":
        raise ConfigError(f"{config.name}: an encoder has no cache")
    sizes = {"batch": batch, "past": tokens}
    numbers = sum(
        prod(dim if isinstance(dim, int) else sizes[dim] for dim in tensor.shape)
        for mixer in config.mixers
        for tensor in mixer.cache(config)
    )
    return numbers * bytes_per_number


def _stack(config: ModelConfig, tokens: int, keys: int) -> int:
    mixing = sum(mixer.flops(config, tokens, keys) for mixer in config.mixers)
    return mixing + sum(ffn.flops(config, tokens) for ffn in config.ffns)


def _shared(config: ModelConfig, tokens: int, keys: int) -> int:
    """What a call computes once for all rows of a batch."""
    return sum(mixer.shared_flops(config, tokens, keys) for mixer in config.mixers if isinstance(mixer, SharesWork))


def _cross(config: ModelConfig, tokens: int, source: int) -> int:
    """Cross-attention of all layers without its keys and values: Q, O, scores and values."""
    return config.layers * 4 * config.heads * config.head_dim * tokens * (config.dim + source)


def _cross_keys(config: ModelConfig, source: int) -> int:
    return config.layers * 4 * config.dim * config.heads * config.head_dim * source
