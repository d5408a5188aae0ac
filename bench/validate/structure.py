"""Structure: what can be said of a graph without running it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...models.signature import Array
from .candidate import Candidate, nodes
from .finding import Finding
from .integrity import external_path, external_range, stored_bytes

if TYPE_CHECKING:
    import onnx

CHECK = "structure"
DOUBLED = 0.02  # of all weights, stored a second time
SMALL = 64  # elements below which equal tensors are a coincidence
SOFTMAX = ("Softmax", "LogSoftmax", "Hardmax")


def check(candidate: Candidate) -> list[Finding]:
    """Defects and oddities; an empty list when there is nothing to say."""
    findings = [
        *_checker(candidate),
        *_dropout(candidate),
        *_doubled(candidate),
        *_old_softmax(candidate),
        *_domains(candidate),
        *_fusions(candidate),
    ]
    if any(finding.status == "fail" for finding in findings):
        return findings
    count = sum(1 for _ in nodes(candidate.proto.graph))
    return [Finding(check=CHECK, status="pass", says=f"{count} nodes at opset {candidate.opset}"), *findings]


def _checker(candidate: Candidate) -> Iterator[Finding]:
    """The ONNX checker, by path: a model above 2 GiB has no other way."""
    import onnx

    try:
        onnx.checker.check_model(str(candidate.path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, RuntimeError) as error:
        says = " ".join(str(error).split())[:300]
        yield Finding(check=CHECK, status="fail", says=f"the ONNX checker refuses the model: {says}")


def _dropout(candidate: Candidate) -> Iterator[Finding]:
    constants = {tensor.name: tensor for tensor in candidate.proto.graph.initializer}
    for node in nodes(candidate.proto.graph):
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.HasField("t"):
                constants[node.output[0]] = attribute.t
    for node in nodes(candidate.proto.graph):
        mode = constants.get(node.input[2]) if node.op_type == "Dropout" and len(node.input) > 2 else None
        if mode is not None and bool(_array(mode, candidate.path.parent).any()):
            yield Finding(
                check=CHECK,
                status="fail",
                says=f"Dropout {node.name or node.output[0]!r} is live: every run gives another result",
                remedy="call module.eval() before the export",
            )
            return


def _doubled(candidate: Candidate) -> Iterator[Finding]:
    """Float weights stored twice, as they are or transposed: tied weights that an export has untied."""
    folder = candidate.path.parent
    seen: dict[bytes, str] = {}
    pairs: list[tuple[int, str, str]] = []
    total = 0
    for tensor in candidate.proto.graph.initializer:
        size = stored_bytes(tensor)
        total += size
        array = _weights(tensor, folder)
        if array is None:
            continue
        first = seen.get(_digest(array)) or (seen.get(_digest(array.T)) if array.ndim == 2 else None)
        if first is not None:
            pairs.append((size, first, tensor.name))
        else:
            seen[_digest(array)] = tensor.name
    doubled = sum(size for size, _, _ in pairs)
    if pairs and doubled > DOUBLED * (total - doubled):
        size, first, second = max(pairs)
        share = doubled / (total - doubled)
        yield Finding(
            check=CHECK,
            status="fail",
            says=f"{first!r} and {second!r} are one matrix stored twice; {share:.0%} of the weights are doubled",
            remedy="tie the weights in the graph: one initializer, transposed where it is used",
            data={"doubled_bytes": doubled, "total_bytes": total},
        )


def _weights(tensor: onnx.TensorProto, folder: Path) -> Array | None:
    """A float tensor worth comparing: of some size, and not one value all over."""
    if np.prod(tensor.dims, dtype=np.float64) < SMALL:
        return None
    array = _array(tensor, folder)
    if not np.issubdtype(array.dtype, np.floating) or array.dtype.itemsize > 8:
        return None
    first = array.flat[0]
    return None if bool((array == first).all()) else array


def _array(tensor: onnx.TensorProto, folder: Path) -> Array:
    """The values of a tensor; external ones stay mapped on disk."""
    from onnx import TensorProto, helper, numpy_helper

    if tensor.data_location != TensorProto.EXTERNAL:
        return np.asarray(numpy_helper.to_array(tensor))
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    offset, _ = external_range(tensor)
    path = external_path(tensor, folder)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=tuple(tensor.dims))


def _digest(array: Array) -> bytes:
    shape = repr((array.shape, array.dtype.str)).encode()
    return hashlib.sha256(shape + np.ascontiguousarray(array).tobytes()).digest()


def _old_softmax(candidate: Candidate) -> Iterator[Finding]:
    """Before opset 13 Softmax flattens all axes from `axis` on; runtimes read such files in two ways."""
    if candidate.opset >= 13:
        return
    ranks = {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*candidate.proto.graph.input, *candidate.proto.graph.value_info, *candidate.proto.graph.output)
    }
    for node in nodes(candidate.proto.graph):
        if node.op_type not in SOFTMAX:
            continue
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
        rank = ranks.get(node.input[0], ranks.get(node.output[0]))
        if rank is None or axis in (-1, rank - 1):
            continue
        yield Finding(
            check=CHECK,
            status="fail",
            says=f"{node.op_type} over axis {axis} of {rank} at opset {candidate.opset} takes all later axes together, "
            "and runtimes are known to take that axis alone",
            remedy="convert the model to opset 13 or later with onnx.version_converter; never raise the number alone",
        )


def _domains(candidate: Candidate) -> Iterator[Finding]:
    custom = sorted({node.domain for node in nodes(candidate.proto.graph)} - {"", "ai.onnx"})
    if custom:
        yield Finding(check=CHECK, status="note", says=f"operators beyond the standard: {', '.join(custom)}")


def _fusions(candidate: Candidate) -> Iterator[Finding]:
    """Attention that stands there in pieces is right, but no fused kernel will run it."""
    kinds = [node.op_type for node in nodes(candidate.proto.graph)]
    whole = sum(kind in ("Attention", "MultiHeadAttention", "GroupQueryAttention") for kind in kinds)
    if not whole and "Softmax" in kinds and kinds.count("MatMul") >= 2:
        yield Finding(check=CHECK, status="note", says="attention is not fused: 0 attention operators, but Softmax")
