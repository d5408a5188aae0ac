"""Declared shapes of outputs against real ones: does a graph do what it says of itself?"""

from __future__ import annotations

from collections.abc import Mapping

from ...models.signature import Array, Sizes, TensorSpec
from .candidate import Candidate
from .finding import Finding

CHECK = "structure"


def check(candidate: Candidate, sizes: Sizes, outputs: Mapping[str, Array]) -> list[Finding]:
    """A note on the first output of another shape than declared, at these sizes of the free axes.

    An axis of an output that no input has is whatever it is. A wrong declaration is no other function, but a runtime
    that allocates by it fails, and a length that was baked in often shows here alone.
    """
    for spec in candidate.signature.outputs:
        found = outputs.get(spec.name)
        if found is not None and spec.shape and not _as_declared(spec, found, sizes):
            at = ", ".join(f"{axis} {size}" for axis, size in sorted(sizes.items()))
            shapes = f"is declared as {list(spec.shape)} and has the shape {list(found.shape)}"
            return [Finding(check=CHECK, status="note", says=f"output {spec.name} {shapes}{f' at {at}' if at else ''}")]
    return []


def _as_declared(spec: TensorSpec, found: Array, sizes: Sizes) -> bool:
    axes = zip(spec.shape, found.shape, strict=False)
    return len(spec.shape) == found.ndim and all(_size(spec, axis, sizes) in (None, size) for axis, size in axes)


def _size(spec: TensorSpec, axis: int | str, sizes: Sizes) -> int | None:
    try:
        return TensorSpec(spec.name, spec.dtype, (axis,)).resolve(sizes)[0]
    except KeyError:
        return None
