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
    """`Signature.feeds`, and positions from 0 on for a model that has positions but no mask.

    Raises:
        NoFeeds: an input that is no number, an odd mask, or more bytes than the memory allows.
    """
    specs = {spec.name: spec for spec in declared.inputs}
    _possible(declared, specs, sizes)
    if POSITIONS not in specs or MASK in specs:
        return declared.feeds(sizes, padding=padding, seed=seed)
    others = Signature(tuple(spec for spec in declared.inputs if spec.name != POSITIONS), declared.outputs)
    feeds = others.feeds(sizes, padding=padding, seed=seed)
    shape = specs[POSITIONS].resolve(sizes)
    past = next((size for axis, size in sizes.items() if "past" in axis), 0)
    feeds[POSITIONS] = np.broadcast_to(past + np.arange(shape[-1]), shape).astype(specs[POSITIONS].dtype)
    return {name: feeds[name] for name in specs}


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
