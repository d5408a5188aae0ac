"""What of a graph lies between one value that both sides of a walk have, and those before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...models.signature import Array
from .candidate import QUANTISED

if TYPE_CHECKING:
    import onnx

BYTES = (2, 3, 21, 22)  # onnx.TensorProto.UINT8, INT8, UINT4, INT4


class Regions:
    """The nodes and stored tensors behind each value that is shared."""

    def __init__(self, model: onnx.ModelProto, shared: Iterable[str]) -> None:
        self._makers = {name: node for node in model.graph.node for name in node.output}
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self._shared = frozenset(shared)

    def of(self, value: str) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        """The nodes and the tensors; none of a value that no node of the main graph makes."""
        nodes, tensors, seen, left = [], [], {value}, [value] if value in self._makers else []
        while left:
            node = self._makers[left.pop()]
            nodes.append(node)
            for name in set(node.input) - seen:
                seen.add(name)
                if name in self._stored:
                    tensors.append(self._stored[name])
                elif name in self._makers and name not in self._shared:
                    left.append(name)
        return nodes, tensors

    def within(self, value: str) -> tuple[str, ...]:
        """The values that are made there, the one itself left out."""
        nodes, _ = self.of(value)
        return tuple(name for node in nodes for name in node.output if name != value)

    def quantised(self, value: str) -> bool:
        """Whether integers stand for weights or activations there."""
        nodes, tensors = self.of(value)
        integers = any(tensor.data_type in BYTES and len(tensor.dims) > 1 for tensor in tensors)
        return integers or any(part in node.op_type for node in nodes for part in QUANTISED)

    def changed(self, value: str, wanted: Mapping[str, Array]) -> tuple[str, ...]:
        """The names of those arrays that the region has in another version: one of the size, but none that is equal."""
        from onnx import numpy_helper

        _, tensors = self.of(value)
        arrays = [np.asarray(numpy_helper.to_array(tensor)) for tensor in tensors]
        sizes = {array.size for array in arrays}
        return tuple(
            name
            for name, array in wanted.items()
            if array.size in sizes and not any(_equal(array, other) for other in arrays)
        )


def _equal(wanted: Array, stored: Array) -> bool:
    """As it is, transposed, or with axes of size 1."""
    if wanted.size != stored.size:
        return False
    versions = (wanted, wanted.T)
    return any(np.array_equal(version.astype(stored.dtype).reshape(-1), stored.reshape(-1)) for version in versions)
