"""Run a graph as it is, outside any runtime of the bench: ONNX Runtime if it is here, else the ONNX reference.

Without optimisations, but for a graph that multiplies integers: at the extended level it does so without saturation
on every processor (`integer.py`). On a CPU ONNX Runtime computes float16 in float32 all the same, and rounds what is
stored or leaves the graph: what overflows on the way has to be looked for elsewhere (`scan.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from ...models.signature import Array
from ..external import messages
from .integer import EXACT


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
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_DISABLE_ALL
    if _multiplies_integers(model):
        options.graph_optimization_level = levels.ORT_ENABLE_EXTENDED
        for name, value in EXACT.items():
            options.add_session_config_entry(name, value)
    options.log_severity_level = 4  # failures arrive as exceptions
    options.intra_op_num_threads = 1
    given = str(model) if isinstance(model, Path) else model.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its C++ code raises classes of its own
        raise Unevaluable(" ".join(str(error).split())[:120]) from None
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, dict(feeds)), strict=True))


def _multiplies_integers(model: onnx.ModelProto | Path) -> bool:
    if isinstance(model, Path):
        try:
            model = onnx.load(model, load_external_data=False)
        except DecodeError:
            return False  # the runtime says what is wrong with it
    parts = messages(model)
    return any(isinstance(part, onnx.NodeProto) and part.op_type == "MatMulInteger" for part in parts)


def _onnxruntime(model: onnx.ModelProto | Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    return evaluator(model)(feeds)


def _reference(model: onnx.ModelProto | Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(model) if isinstance(model, Path) else model)
    with np.errstate(all="ignore"):
        return dict(zip(evaluator.output_names, evaluator.run(None, dict(feeds)), strict=True))
