"""Run a graph as it is, outside any runtime of the bench: ONNX Runtime if it is here, else the ONNX reference.

Without optimisations. On a CPU ONNX Runtime computes float16 in float32 all the same, and rounds what is stored or
leaves the graph: what overflows on the way has to be looked for elsewhere (`scan.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx

from ...models.signature import Array


class Unevaluable(Exception):
    """Nothing here can run the graph; the message says why."""


def evaluate(model: onnx.ModelProto | Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name.

    Raises:
        Unevaluable: neither evaluator can run the graph.
    """
    reasons = []
    for run in (_onnxruntime, _reference):
        try:
            return run(model, feeds)
        except Exception as error:  # neither library has a base class for its errors
            reasons.append(" ".join(str(error).split())[:120] or type(error).__name__)
    raise Unevaluable("; ".join(reasons))


def evaluator(model: onnx.ModelProto | Path) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """A graph on ONNX Runtime, loaded once for many feeds; its own errors come through.

    Raises:
        Unevaluable: ONNX Runtime is not here, or does not load the graph.
    """
    if find_spec("onnxruntime") is None:
        raise Unevaluable("onnxruntime is not installed")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4  # failures arrive as exceptions
    options.intra_op_num_threads = 1
    given = str(model) if isinstance(model, Path) else model.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its C++ code raises classes of its own
        raise Unevaluable(" ".join(str(error).split())[:120]) from None
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, dict(feeds)), strict=True))


def _onnxruntime(model: onnx.ModelProto | Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    return evaluator(model)(feeds)


def _reference(model: onnx.ModelProto | Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(model) if isinstance(model, Path) else model)
    with np.errstate(all="ignore"):
        return dict(zip(evaluator.output_names, evaluator.run(None, dict(feeds)), strict=True))
