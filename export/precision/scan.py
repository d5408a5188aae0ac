"""How large the values inside a graph become on example inputs: the graph itself, run with every float shown."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir

from ...models.signature import Array
from .evaluate import Unevaluable, evaluate
from .kept import is_float

PROTO_LIMIT = 2**31 - 2**20  # a serialised model cannot be larger


def magnitudes(model: ir.Model, feeds: Mapping[str, Array]) -> dict[str, float]:
    """The largest finite magnitude of each float value of the main graph, by name.

    Raises:
        Unevaluable: nothing here can run the graph.
    """
    if sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value) > PROTO_LIMIT:
        raise Unevaluable("the weights are more than 2 GiB")
    proto = ir.to_proto(model)
    given = {value.name for value in proto.graph.output}
    shown = [value for node in model.graph for value in node.outputs if is_float(value) and value.name not in given]
    proto.graph.output.extend(onnx.ValueInfoProto(name=value.name, type=_float()) for value in shown)
    return {name: _largest(array) for name, array in evaluate(proto, feeds).items() if array.dtype.kind == "f"}


def _float() -> onnx.TypeProto:
    return onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor(elem_type=onnx.TensorProto.FLOAT))


def _largest(array: Array) -> float:
    sizes = np.abs(array)
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))
