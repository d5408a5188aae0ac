"""Which nodes a half-precision graph keeps in float32, and why.

Five reasons: the operator has no such type; ONNX Runtime crashes; it computes with positions and counts, whole numbers
beyond the 2048 that float16 can tell apart (256 in bfloat16); a constant that it reads is outside the range; or its
values were, on example inputs. Norms need none of it: they keep their statistics in float32 by `stash_type`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

import numpy as np
import onnx_ir as ir
from onnx import defs

FLOAT = ir.DataType.FLOAT
HEADROOM = 4.0  # other inputs reach further than the examples do
SMALL = 1024  # elements up to which a constant is read; weights are larger
RANGE = {ir.DataType.FLOAT16: (2.0**-24, 65504.0), ir.DataType.BFLOAT16: (2.0**-133, 3.3895e38)}
NAMES = {ir.DataType.FLOAT16: "float16", ir.DataType.BFLOAT16: "bfloat16"}
INTEGERS = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.UINT64, ir.DataType.UINT32)
CRASH = "ONNX Runtime 1.32 crashes where it fuses this transpose of leading axes with the product in float16"
LOOKUPS = ("Gather", "GatherElements", "GatherND")

Kept = dict[ir.Node, str]


class _Origin(IntEnum):
    """What a float value is made from; a node's outputs have the largest of its inputs."""

    CONSTANT = 0
    COUNT = 1
    DATA = 2


def nodes(model: ir.Model) -> Iterator[ir.Node]:
    """All nodes, those of subgraphs after the node that holds them."""
    return iter(ir.traversal.RecursiveGraphIterator(model.graph))


def kept(model: ir.Model, half: ir.DataType, largest: Mapping[str, float]) -> Kept:
    """The nodes to keep, each with its reason; `largest` has the magnitudes on example inputs by value name."""
    _, most = RANGE[half]
    found = _counting(model, half)
    for node in nodes(model):
        if node in found:
            continue
        touched = [value for value in (*node.inputs, *node.outputs) if value is not None and is_float(value)]
        beyond = [value for value in touched if largest.get(value.name or "", 0.0) > most / HEADROOM]
        constants = [value for value in touched if outside(constant(value), half)]
        if beyond:
            size = largest[beyond[0].name or ""]
            found[node] = f"values reach {size:.2g} on example inputs, and {NAMES[half]} ends at {most:.5g}"
        elif constants:
            found[node] = f"a constant outside the range of {NAMES[half]}"
        elif half == ir.DataType.FLOAT16 and _crashes(node):
            found[node] = CRASH
        elif touched and not _allowed(node, half):
            found[node] = f"the operator has no {NAMES[half]}"
    return found


def least_fill(model: ir.Model, half: ir.DataType) -> float:
    """The least magnitude of a mask fill, a single number beyond the range: a value as large as that is masked."""
    numbers = (constant(value) for value in model.graph.initializers.values() if is_float(value))
    sizes = (float(np.abs(values).max()) for values in numbers if values is not None and values.size == 1)
    return min((size for size in sizes if RANGE[half][1] < size < np.inf), default=np.inf)


def is_float(value: ir.Value | None) -> bool:
    """Whether a value is float32."""
    return value is not None and value.dtype == FLOAT


def constant(value: ir.Value) -> np.ndarray | None:
    """The values of a small initializer; None for anything else."""
    tensor = value.const_value if value.is_initializer() else None
    return tensor.numpy() if tensor is not None and tensor.size <= SMALL else None


def outside(values: np.ndarray | None, half: ir.DataType) -> bool:
    """Whether a constant would become infinite, or a single number zero."""
    if values is None:
        return False
    least, most = RANGE[half]
    finite = np.abs(values[np.isfinite(values)])
    lost = values.size == 1 and bool(((finite > 0) & (finite < least)).any())
    return lost or bool((finite > most).any())


def _counting(model: ir.Model, half: ir.DataType) -> Kept:
    """The nodes whose floats come from integers and constants alone: positions, distances, lengths."""
    origin: dict[ir.Value, _Origin] = {}
    counting: list[ir.Node] = []
    for node in nodes(model):
        found = _origin(node, origin)
        if found is _Origin.COUNT:
            counting.append(node)
        origin.update(dict.fromkeys(node.outputs, found))
    exact = 2048 if half == ir.DataType.FLOAT16 else 256
    reason = f"computes with positions, and whole numbers above {exact} are not exact in {NAMES[half]}"
    inside = set(counting)
    return {node: reason for node in counting if not _last_cast(node, inside)}


def _last_cast(node: ir.Node, inside: set[ir.Node]) -> bool:
    """A cast whose result leaves the region at once may as well cast to the half type."""
    return node.op_type == "Cast" and not any(user in inside for user in node.outputs[0].consumers())


def _origin(node: ir.Node, origin: Mapping[ir.Value, _Origin]) -> _Origin:
    if not any(is_float(value) for value in node.outputs):
        return _Origin.DATA
    floats = [value for value in node.inputs if is_float(value)]
    if not floats:
        counts = any(value is not None and value.dtype in INTEGERS for value in node.inputs)
        return _Origin.COUNT if counts and node.op_type in ("Cast", "Range") else _Origin.CONSTANT
    found = max(_of(value, origin) for value in floats if value is not None)
    return _Origin.DATA if found is _Origin.CONSTANT and node.op_type in LOOKUPS else found


def _of(value: ir.Value, origin: Mapping[ir.Value, _Origin]) -> _Origin:
    return origin.get(value, _Origin.CONSTANT if value.is_initializer() else _Origin.DATA)


def _crashes(node: ir.Node) -> bool:
    """Time-first states turned batch-first before a linear layer: Transpose (1, 0, 2), then MatMul."""
    if node.op_type != "Transpose" or not is_float(node.outputs[0]) or "perm" not in node.attributes:
        return False
    perm = tuple(node.attributes["perm"].as_ints())
    moves = perm[-1] == len(perm) - 1 and perm[0] != 0
    return moves and any(user.op_type == "MatMul" for user in node.outputs[0].consumers())


def _allowed(node: ir.Node, half: ir.DataType) -> bool:
    """Whether the operator takes the half type wherever this node has float32."""
    version = node.version or (node.graph.opset_imports.get(node.domain) if node.graph else None)
    try:
        schema = defs.get_schema(node.op_type, version or 1, node.domain)
    except defs.SchemaError:
        return node.domain == "com.microsoft"  # contrib operators take float16, and their schemas are not at hand
    wanted = f"tensor({NAMES[half]})"
    types = {entry.type_param_str: entry.allowed_type_strs for entry in schema.type_constraints}
    for values, formal in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        for i, value in enumerate(values):
            parameter = formal[min(i, len(formal) - 1)]
            if is_float(value) and wanted not in types.get(parameter.type_str, [parameter.type_str]):
                return False
    return True
