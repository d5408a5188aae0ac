"""One node as a model: built in float32, evaluated by the arbiter in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from isorun.runtimes.reference import Float64Graph

Evaluate = Callable[..., list[np.ndarray]]


@pytest.fixture
def evaluate() -> Evaluate:
    """`evaluate(op, {name: array or None}, outputs=1, opset=23, **attributes)` -> the list of outputs.

    Float arrays are declared FLOAT in the model and fed in float64: what comes of them is float64 or wrong.
    """

    def run(
        op: str, inputs: Mapping[str, np.ndarray | None], *, outputs: int = 1, opset: int = 23, **attributes: Any
    ) -> list[np.ndarray]:
        feeds = {name: array for name, array in inputs.items() if array is not None}
        names = [name if array is not None else "" for name, array in inputs.items()]
        results = [f"out{i}" for i in range(outputs)]
        graph = helper.make_graph(
            [helper.make_node(op, names, results, **attributes)],
            "one_node",
            [helper.make_tensor_value_info(name, _declared(array), array.shape) for name, array in feeds.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        return list(Float64Graph(model).run(feeds).values())

    return run


def _declared(array: np.ndarray) -> int:
    return TensorProto.FLOAT if array.dtype == np.float64 else helper.np_dtype_to_tensor_dtype(array.dtype)
