"""Inputs that the validator makes itself, at any sizes, for the models whose inputs it can guess."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from ...export.machine import free_bytes
from ...models.signature import Array, Padding, Signature, Sizes, TensorSpec
from ..client import WorkerError

SHARE = 0.1  # of the free memory, for the inputs of one call
MASK, POSITIONS = "attention_mask", "position_ids"


class NoFeeds(WorkerError):
    """The validator cannot make inputs for this signature."""


def make(declared: Signature, sizes: Sizes, *, padding: Padding = "none", seed: int = 0) -> dict[str, Array]:
    """`Signature.feeds`, where it can be trusted.

    Raises:
        NoFeeds: an input that is no number, an odd mask, or more bytes than the memory allows.
    """
    _possible(declared, {spec.name: spec for spec in declared.inputs}, sizes)
    return declared.feeds(sizes, padding=padding, seed=seed)


def _possible(declared: Signature, specs: Mapping[str, TensorSpec], sizes: Sizes) -> None:
    size = 0
    for spec in declared.inputs:
        dtype = np.dtype(spec.dtype)
        if dtype.kind not in "biuf":
            raise NoFeeds(f"input {spec.name} takes {spec.dtype}")
        size += dtype.itemsize * prod(spec.resolve(sizes))
    for name, spec in specs.items():
        if (name.endswith(MASK) or name == POSITIONS) and len(spec.shape) != 2:
            raise NoFeeds(f"input {name} has {len(spec.shape)} axes, and 2 are usual")
    if size > SHARE * free_bytes():
        raise NoFeeds(f"inputs of {size / 2**30:.1f} GiB are too much")
