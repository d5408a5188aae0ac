"""Signatures: the named tensors of a graph with their free axes, and the feeds made from them (numpy only)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Feeds = Mapping[str, Array]
Sizes = Mapping[str, int]
Padding = Literal["none", "left", "right"]
PAST, PRESENT = "past_key_values", "present"  # how names of cached tensors begin, before and after a call
Dim = int | str  # a fixed size, or the name of a free axis: "batch", "past + sequence"


@dataclass(frozen=True)
class TensorSpec:
    """One named tensor: numpy dtype name, shape with free axes by name, and an exclusive upper bound for ids."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    limit: int | None = None

    def resolve(self, sizes: Sizes) -> tuple[int, ...]:
        """The shape at the given sizes; a free axis may be a sum of names and numbers ("past + sequence", "past + 1").

        Raises:
            KeyError: an axis has no size.
        """
        return tuple(
            dim if isinstance(dim, int) else sum(_length(part, sizes) for part in _parts(dim)) for dim in self.shape
        )


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a graph, in order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def axes(self) -> frozenset[str]:
        """The names of the free axes of the inputs."""
        dims = (dim for spec in self.inputs for dim in spec.shape if isinstance(dim, str))
        return frozenset(part for dim in dims for part in _parts(dim) if not part.isdecimal())

    @property
    def cached(self) -> bool:
        """Whether an axis counts tokens of a past."""
        return any("past" in axis.lower() for axis in self.axes)

    @property
    def lengths(self) -> tuple[str, ...]:
        """The axes of new tokens in the order of their names: more than one where an encoder has its own."""
        rows = self._rows()
        return tuple(sorted(axis for axis in self.axes if axis not in rows and _role(axis) == "new"))

    def sizes(self, *, batch: int, length: int, past: int, apart: int = 0) -> dict[str, int]:
        """A size for each free axis: a batch by its name or its place, then the past, past and new tokens, or new ones.

        What always comes first, and is not all there is, is a batch. Of several axes of new tokens, such as those of an
        encoder and a decoder, each is `apart` longer than the one before.
        """
        rows, by_role = self._rows(), {"batch": batch, "total": past + length, "past": past, "new": length}
        found = {axis: batch if axis in rows else by_role[_role(axis)] for axis in self.axes}
        return found | {axis: length + index * apart for index, axis in enumerate(self.lengths)}

    def _rows(self) -> set[str]:
        free = [[dim if isinstance(dim, str) else "" for dim in spec.shape] for spec in self.inputs]
        first = {shape[0] for shape in free if len(shape) > 1} - {dim for shape in free for dim in shape[1:]}
        return first if self.axes - first else set()

    def feeds(self, sizes: Sizes, *, seed: int = 0, padding: Padding = "none") -> dict[str, Array]:
        """Deterministic inputs at the given sizes.

        Masks are ones with zeros on the padded side (row r > 0 of a batch loses up to r tokens, never all); positions
        count the real tokens, or without a mask all tokens behind the past; ids are drawn below their limit; everything
        else is standard normal.

        Raises:
            KeyError: an axis has no size.
        """
        rng = np.random.default_rng(seed)
        feeds: dict[str, Array] = {}
        for spec in self.inputs:
            shape = spec.resolve(sizes)
            if spec.name.endswith("attention_mask") and len(shape) == 2:
                feeds[spec.name] = _mask(shape, padding).astype(spec.dtype)
            elif np.issubdtype(np.dtype(spec.dtype), np.floating):
                feeds[spec.name] = rng.standard_normal(shape).astype(spec.dtype)
            else:
                feeds[spec.name] = rng.integers(0, spec.limit or 2, shape).astype(spec.dtype)
        if "position_ids" in feeds:
            feeds["position_ids"] = _positions(feeds, next((sizes[axis] for axis in sizes if "past" in axis), 0))
        return feeds


def _positions(feeds: Feeds, past: int) -> Array:
    wanted, mask = feeds["position_ids"], feeds.get("attention_mask")
    if mask is not None and mask.ndim == 2:
        return positions(mask, wanted.shape[-1]).astype(wanted.dtype)
    return np.broadcast_to(past + np.arange(wanted.shape[-1]), wanted.shape).astype(wanted.dtype)


def _role(axis: str) -> str:
    """What the name of an axis says."""
    return next((role for role in ("batch", "total", "past") if role in axis.lower()), "new")


def _parts(dim: str) -> list[str]:
    return [part.strip() for part in dim.split("+")]


def _length(part: str, sizes: Sizes) -> int:
    return int(part) if part.isdecimal() else sizes[part]


def positions(mask: Array, tokens: int) -> Array:
    """Positions of the last `tokens` columns of a mask (batch, past + tokens): real tokens counted from 0."""
    return np.clip(np.cumsum(mask.astype(np.int64), axis=1) - 1, 0, None)[:, mask.shape[1] - tokens :]


def _mask(shape: tuple[int, ...], padding: Padding) -> NDArray[np.int64]:
    batch, length = shape
    mask = np.ones(shape, np.int64)
    if padding != "none":
        for row in range(1, batch):
            padded = min(row, length - 1)
            if padded > 0:
                mask[row, slice(0, padded) if padding == "left" else slice(length - padded, None)] = 0
    return mask
