"""Small graphs with one trap each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

Array = NDArray[Any]


def graph(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: Mapping[str, tuple[int, Sequence[int | str]]],
    weights: Mapping[str, Array],
) -> ir.Model:
    """A checked model at opset 23, types inferred."""
    from onnx import checker, shape_inference

    made = helper.make_model(
        helper.make_graph(
            list(nodes),
            "g",
            [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
            [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()],
            [numpy_helper.from_array(array, name) for name, array in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", 23)],
        ir_version=10,
    )
    checker.check_model(made, full_check=True)
    return ir.from_proto(shape_inference.infer_shapes(made))


def node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs, [output], name=f"{op}_{output}", **attributes)


FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def ops(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def relative(found: Array, truth: Array) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - truth) / np.linalg.norm(truth))
