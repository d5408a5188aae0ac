"""Inputs given by the user: read without unpickling, and held to the declared names, types, ranks and ranges."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...models.signature import Array, TensorSpec
from .candidate import Candidate
from .finding import Finding, refuse

CHECK = "inputs"
# What NumPy and zipfile raise on files that are cut, or not what they say.
DAMAGED = (
    AttributeError, EOFError, KeyError, MemoryError, NotImplementedError, OSError, OverflowError, RuntimeError,
    SyntaxError, TypeError, ValueError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def read(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file.

    Raises:
        Refusal: not an .npz, or one with pickled objects, which are never opened.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise refuse(CHECK, f"{path}: no such file") from None
    except DAMAGED as error:
        says = f"{path}: not an .npz of plain arrays: {' '.join(str(error).split())[:200]}"
        raise refuse(CHECK, says, "save it with numpy.savez; pickled objects are never opened") from None
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise refuse(CHECK, f"{path}: {name} holds {array.dtype}, and only numbers and booleans can be compared")
    return arrays


def check(candidate: Candidate, feeds: Mapping[str, Array]) -> list[Finding]:
    """Notes on legal but odd values.

    Raises:
        Refusal: a name, type, rank, size or id that the model cannot take, with what it wants.
    """
    declared = {spec.name: spec for spec in candidate.signature.inputs}
    missing, unknown = [n for n in declared if n not in feeds], [n for n in feeds if n not in declared]
    if missing or unknown:
        wanted = ", ".join(declared)
        given = ", ".join(feeds)
        raise refuse(CHECK, f"the model's inputs are {wanted}, and {given} were given", "rename the arrays of --inputs")
    axes: dict[str, tuple[int, str]] = {}
    for name, spec in declared.items():
        _type_and_shape(spec, feeds[name], axes)
    return [note for name, spec in declared.items() for note in _ids(spec, feeds[name])]


def _type_and_shape(spec: TensorSpec, array: Array, axes: dict[str, tuple[int, str]]) -> None:
    if array.dtype.name != spec.dtype:
        remedy = f"cast it: {spec.name}.astype({spec.dtype!r})"
        raise refuse(CHECK, f"input {spec.name} is {array.dtype.name} and should be {spec.dtype}", remedy)
    if array.ndim != len(spec.shape):
        shapes = f"{list(array.shape)} and should have {len(spec.shape)} axes: {list(spec.shape)}"
        raise refuse(CHECK, f"input {spec.name} has the shape {shapes}")
    for axis, (dim, size) in enumerate(zip(spec.shape, array.shape, strict=True)):
        if isinstance(dim, int) and dim != size:
            raise refuse(CHECK, f"input {spec.name} has {size} on axis {axis}, and the model fixes it at {dim}")
        if isinstance(dim, str) and dim.isidentifier():
            known, where = axes.setdefault(dim, (size, spec.name))
            if known != size:
                raise refuse(CHECK, f"axis {dim!r} is {known} in {where} and {size} in {spec.name}")


def _ids(spec: TensorSpec, array: Array) -> list[Finding]:
    """Ids must lie in the table that they look up; negative ones are legal and count from its end."""
    rows = spec.limit
    if rows is None or not np.issubdtype(array.dtype, np.integer) or not array.size:
        return []
    low, high = int(array.min()), int(array.max())
    if high >= rows or low < -rows:
        worst = high if high >= rows else low
        raise refuse(CHECK, f"input {spec.name} holds the id {worst}, and its table has {rows} rows: 0 to {rows - 1}")
    if low < 0:
        says = f"input {spec.name} holds the id {low}: legal, but it looks up row {rows + low}, counted from the end"
        return [Finding(check=CHECK, status="note", says=says)]
    return []
