"""Weights apart from the graph: mapped where they lie and widened when they are read, so that they are held once.

A graph with its weights in double inside takes four times the file: the message, its copy, and both in float64.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx

    from ..models.signature import Array

NARROW = ("bfloat16", "float16", "float32")
LARGE = 2**16  # bytes of a tensor that is taken out of the graph
AT_ONCE = 2**28  # bytes of all of them up to which they are widened once and for all


def weights_apart(model: Path | onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A graph without its large initializers, and those; a model that is given stays as it is."""
    return load(model) if isinstance(model, Path) else without_weights(model)


def load(path: Path) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model without its large initializers, and those, mapped on disk where they lie in another file."""
    import onnx
    from onnx.external_data_helper import load_external_data_for_model

    model = onnx.load(path, load_external_data=False)
    weights = detach(model, path.parent)
    load_external_data_for_model(model, str(path.parent))  # what is left is small
    _densify(model.graph)
    return model, weights


def detach(model: onnx.ModelProto, folder: Path | None = None) -> dict[str, Array]:
    """Take the large initializers out of a model; external ones need the folder that they lie in."""
    graph, weights, kept = model.graph, {}, []
    for tensor in graph.initializer:
        if _large(tensor):
            weights[tensor.name] = _array(tensor, folder)
            tensor.ClearField("raw_data")
        else:
            kept.append(tensor)
    if weights:
        rest = [type(tensor).FromString(tensor.SerializeToString()) for tensor in kept]
        del graph.initializer[:]
        graph.initializer.extend(rest)
    return weights


def without_weights(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The same of a model that stays as it is: the large initializers, and a copy of all the rest."""
    rest = skeleton(model)
    small = [tensor for tensor in model.graph.initializer if not _large(tensor)]
    del rest.graph.initializer[:]
    rest.graph.initializer.extend(small)
    _densify(rest.graph)
    return rest, {tensor.name: _array(tensor, None) for tensor in model.graph.initializer if _large(tensor)}


def _densify(graph: onnx.GraphProto) -> None:
    """Put dense initializers in the place of sparse ones, which the ONNX reference cannot read."""
    from onnx import numpy_helper

    for sparse in graph.sparse_initializer:
        values, places = (np.asarray(numpy_helper.to_array(part)) for part in (sparse.values, sparse.indices))
        array = np.zeros(tuple(sparse.dims), values.dtype)
        if places.ndim == 1:
            array.reshape(-1)[places] = values
        else:
            array[tuple(places.T)] = values
        graph.initializer.append(numpy_helper.from_array(array, sparse.values.name))
    del graph.sparse_initializer[:]


def skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose large initializers have a name, a type and a shape, and their elements elsewhere."""
    rest = type(model)()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy(rest, field, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy(rest.graph, field, value)
    rest.graph.SetInParent()
    for tensor in model.graph.initializer:
        if _large(tensor):
            elsewhere = type(tensor).EXTERNAL
            rest.graph.initializer.add(
                name=tensor.name, dims=tensor.dims, data_type=tensor.data_type, data_location=elsewhere
            )
        else:
            rest.graph.initializer.append(tensor)
    return rest


class Values(dict[str, Any]):
    """Values by name; weights that are kept narrow are widened each time they are read."""

    def __init__(self, stored: dict[str, Array]) -> None:
        super().__init__({"": None})
        self._stored = stored

    def __missing__(self, name: str) -> Array:
        return wide(self._stored[name])

    def narrow(self, name: str) -> Array:
        """A value as it is kept."""
        return self._stored[name] if name in self._stored and name not in self else self[name]

    def seen_by(self, names: Iterable[str]) -> dict[str, Any]:
        """A plain dict for a subgraph that reads these names."""
        return {**self, **{name: self[name] for name in names if name in self._stored}}


def wide(array: Array) -> Array:
    """Narrow floats in float64; anything else as it is."""
    return array.astype(np.float64) if array.dtype.name in NARROW else array


def _large(tensor: onnx.TensorProto) -> bool:
    plain = tensor.data_type in (tensor.FLOAT, tensor.FLOAT16, tensor.DOUBLE, tensor.INT8, tensor.UINT8)
    return plain and prod(tensor.dims) >= LARGE and (tensor.HasField("raw_data") or bool(tensor.external_data))


def _array(tensor: onnx.TensorProto, folder: Path | None) -> Array:
    from onnx import helper, numpy_helper
    from onnx.external_data_helper import ExternalDataInfo

    if not tensor.external_data or folder is None:
        return np.asarray(numpy_helper.to_array(tensor))
    info = ExternalDataInfo(tensor)
    path = folder / info.location
    if ".." in Path(info.location).parts or Path(info.location).is_absolute():
        raise ValueError(f"tensor {tensor.name!r} names the file {info.location!r}, outside the model's folder")
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return np.memmap(path, dtype=dtype, mode="r", offset=int(info.offset or 0), shape=tuple(tensor.dims))


def _copy(target: Any, field: Any, value: Any) -> None:
    if field.is_repeated:
        getattr(target, field.name).extend(value)
    elif field.type == field.TYPE_MESSAGE:
        getattr(target, field.name).CopyFrom(value)
    else:
        setattr(target, field.name, value)
