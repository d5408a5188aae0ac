"""Constant folding that leaves the numbers of a graph alone.

The exporter folds what does not depend on inputs, in float32. Folded weights such as Gemma's 1 + w are numbers that the
source does not have, 6e-8 off; so what would be rounded stays an operator, which a runtime may fold when it loads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript import optimizer
from onnxscript.rewriter import onnx_fusions

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}


def fold(model: ir.Model) -> None:
    """onnxscript's optimisation and fusions as torch.onnx.export applies them, but for weights rounded anew."""
    optimizer.optimize_ir(model, should_fold=_exact)
    onnx_fusions.fuse(model)


def _exact(node: ir.Node) -> bool | None:
    """False for arithmetic with a weight whose result float32 cannot hold; None leaves it to the optimizer."""
    compute = _ARITHMETIC.get(node.op_type)
    if compute is None or len(node.inputs) != 2:
        return None
    constants = [ir.convenience.get_const_tensor(value) if value is not None else None for value in node.inputs]
    if any(c is None or c.dtype != ir.DataType.FLOAT for c in constants) or all(c.size < 2 for c in constants if c):
        return None
    with np.errstate(all="ignore"):
        result = compute(*(c.numpy().astype(np.float64) for c in constants if c))
    return None if np.array_equal(result, result.astype(np.float32), equal_nan=True) else False
