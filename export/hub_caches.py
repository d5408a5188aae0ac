"""The caches of transformers from flat tensors and back again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..models.signature import PAST, PRESENT
from .source import SourceError

Named = Mapping[str, Tensor]


def past_of(named: Named, infix: str) -> Named:
    """The past tensors of one kind of attention."""
    return {name: tensor for name, tensor in named.items() if name.startswith(f"{PAST}.") and infix in name}


def cache_of(named: Named, infix: str) -> Any:
    """A cache of transformers that holds past tensors; it keeps all keys, and masks see to windows."""
    from transformers import DynamicCache

    cache = DynamicCache()
    past = list(past_of(named, infix).values())
    for layer, (key, value) in enumerate(zip(past[::2], past[1::2], strict=True)):
        cache.update(key, value, layer)
    return cache


def two_caches(own: Named, cross: Named) -> Any:
    """The cache of an encoder-decoder, from the past tensors of self-attention and of cross-attention."""
    from transformers import EncoderDecoderCache

    return EncoderDecoderCache(cache_of(own, ""), cache_of(cross, ""))


def present_of(cache: Any, infix: str) -> dict[str, Tensor]:
    """What a cache holds after a call, by the names of outputs."""
    return {
        f"{PRESENT}.{number}.{infix}{kind}": tensor
        for number, layer in enumerate(cache.layers)
        for kind, tensor in (("key", layer.keys), ("value", layer.values))
    }


def layers_of(cache: Any, name: str) -> list[tuple[Tensor, Tensor]]:
    """Keys and values by layer.

    Raises:
        SourceError: a layer keeps something else.
    """
    for number, layer in enumerate(getattr(cache, "layers", [None])):
        keys = getattr(layer, "keys", None)
        if keys is None or keys.dim() != 4 or hasattr(layer, "recurrent_states") or hasattr(layer, "conv_states"):
            what = type(layer).__name__ if layer is not None else type(cache).__name__
            raise SourceError(
                f"hf:{name}: layer {number} caches a {what}, not keys and values: phase step has no form for it"
            )
    return [(layer.keys, layer.values) for layer in cache.layers]
