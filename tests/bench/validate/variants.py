"""What the variants of faults share: a model for arrays that are there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from .graphs import Array, Shape, model

# A model, its inputs, what it should give, and the verdict.
Variant = tuple[onnx.ModelProto, dict[str, Array] | None, dict[str, Array] | None, str]
HALF = np.float16


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def shaped(*arrays: tuple[str, Array]) -> dict[str, tuple[str, Shape]]:
    return {name: (array.dtype.name, list(array.shape)) for name, array in arrays}


def build(nodes: Any, feeds: dict[str, Array], outs: dict[str, Any], constants: Any = None, opset: int = 18) -> Any:
    """A model for these feeds, at their very sizes."""
    ms = any(one.domain == "com.microsoft" for one in nodes)
    proto = model(
        nodes, shaped(*feeds.items()), {k: (a.dtype.name, list(a.shape)) for k, a in outs.items()}, constants, opset
    )
    proto.ir_version = 10 if opset <= 22 else 11
    if ms:
        proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto
