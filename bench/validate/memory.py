"""Outputs that were computed once, on disk: a large model is not loaded a second time for them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...models.signature import Array
from ..client import WorkerError

Key = tuple[str, bool]  # a runtime, and whether its optimisations are on


class Memory:
    """Remembers the outputs, or the error, of a runtime on some inputs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, list[str] | WorkerError] = {}

    def knows(self, key: Key, feeds: Mapping[str, Array]) -> bool:
        """Whether they were kept."""
        return digest(feeds, key) in self._known

    def keep(self, key: Key, feeds: Mapping[str, Array], outputs: Mapping[str, Array] | WorkerError) -> None:
        """Remember them, in place of what was kept before."""
        name = digest(feeds, key)
        if isinstance(outputs, WorkerError):
            self._known[name] = outputs
            return
        np.savez(self._folder / f"{name}.npz", *outputs.values(), allow_pickle=False)
        self._known[name] = list(outputs)

    def recall(self, key: Key, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name.

        Raises:
            WorkerError: there was an error.
        """
        name = digest(feeds, key)
        known = self._known[name]
        if isinstance(known, WorkerError):
            raise known
        with np.load(self._folder / f"{name}.npz", allow_pickle=False) as archive:
            return {output: archive[f"arr_{i}"] for i, output in enumerate(known)}


def digest(feeds: Mapping[str, Array], key: object = None) -> str:
    """A name for inputs, by their values."""
    found = hashlib.sha256(repr(key).encode())
    for name, array in feeds.items():
        found.update(repr((name, array.shape, array.dtype.name)).encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
