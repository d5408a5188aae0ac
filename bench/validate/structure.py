"""Structure: what can be said of a graph without running it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...export.external import external_path, external_range, is_external, messages
from ...models.signature import Array
from ..client import WorkerError
from ..fusions import in_pieces
from .candidate import Candidate
from .checker import Checker
from .finding import Finding, refuse
from .integrity import stored_bytes

if TYPE_CHECKING:
    import onnx

CHECK = "structure"
DOUBLED = 0.02  # of all weights, stored a second time
SMALL = 64  # elements below which equal tensors are a coincidence
NUMBERS = (1, 2, 3, 10, 11, 16)  # onnx.TensorProto.FLOAT, UINT8, INT8, FLOAT16, DOUBLE, BFLOAT16
BLOCK_BYTES = 2**24
OWN = ("LayerNormalization", "SimplifiedLayerNormalization")  # ONNX Runtime's optimizer writes them at any opset
SOFTMAX = ("Softmax", "LogSoftmax", "Hardmax")


def check(candidate: Candidate, checker: Checker) -> list[Finding]:
    """Defects and oddities.

    Raises:
        Refusal: the ONNX checker crashed or hung on the file; nothing else should be tried on it.
    """
    findings = [
        *_checked(candidate, checker),
        *live_dropout(candidate),
        *_doubled(candidate),
        *_old_softmax(candidate),
        *_domains(candidate),
        *_fusions(candidate),
    ]
    if any(finding.status == "fail" for finding in findings):
        return findings
    says = f"{len(candidate.nodes)} nodes at opset {candidate.opset}"
    return [Finding(check=CHECK, status="pass", says=says), *findings]


def _checked(candidate: Candidate, checker: Checker) -> Iterator[Finding]:
    try:
        says = checker.refusal(candidate.path)
    except WorkerError as error:
        raise refuse(CHECK, f"{candidate.path}: the ONNX checker does not survive this file: {error}") from None
    if says is None:
        return
    refusal = f"the ONNX checker refuses the model: {says}"
    if borrowed := sorted({node.op_type for node in candidate.nodes if _borrowed(node, candidate.opset, says)}):
        refusal = f"{', '.join(borrowed)}: ONNX Runtime's own, in the domain of the standard operators; {refusal}"
    yield Finding(check=CHECK, status="note" if borrowed else "fail", says=refusal)


def _borrowed(node: onnx.NodeProto, opset: int, refusal: str) -> bool:
    """Whether it is for this node that a model is refused: ONNX Runtime adds it to the operators of its opset."""
    import onnx

    own = node.domain in ("", "ai.onnx") and node.op_type in OWN and f" {node.op_type} " in refusal
    return own and not onnx.defs.has(node.op_type, max_inclusive_version=opset)


def live_dropout(candidate: Candidate) -> Iterator[Finding]:
    """Dropout that training mode has left on. The mode is a constant, of which only the truth matters."""
    folder = candidate.path.parent
    constants = {tensor.name: tensor for tensor in candidate.proto.graph.initializer}
    for node in candidate.nodes:
        for attribute in node.attribute if node.op_type == "Constant" and node.output else ():
            constants[node.output[0]] = attribute.t
    for node in candidate.nodes:
        mode = constants.get(node.input[2]) if node.op_type == "Dropout" and len(node.input) > 2 else None
        if mode is not None and mode.data_type == mode.BOOL and prod(mode.dims) and _array(mode, folder).any():
            name = node.name or next(iter(node.output), "")
            yield Finding(
                check=CHECK,
                status="fail",
                says=f"Dropout {name!r} is live: every run gives another result",
                remedy="call module.eval() before the export",
            )
            return


def _doubled(candidate: Candidate) -> Iterator[Finding]:
    """Weights stored twice, as they are or transposed: tied weights that an export has untied."""
    folder = candidate.path.parent
    weights = list(_weights(candidate.proto))
    alike = Counter(_alike(tensor) for tensor in weights)
    seen: dict[bytes, str] = {}
    pairs: list[tuple[int, str, str]] = []
    for tensor in weights:
        if alike[_alike(tensor)] == 1 or tensor.data_type not in NUMBERS or prod(tensor.dims) < SMALL:
            continue
        array = np.squeeze(_array(tensor, folder))
        first = seen.get(_digest(array)) or (seen.get(_digest(array.T)) if array.ndim == 2 else None)
        if first is None:
            seen[_digest(array)] = tensor.name
        elif not _constant(array):  # two biases of zeros are no tied weights
            pairs.append((stored_bytes(tensor), first, tensor.name))
    doubled, total = sum(size for size, _, _ in pairs), sum(map(stored_bytes, weights))
    if doubled > DOUBLED * (total - doubled):
        _, first, second = max(pairs)
        share = doubled / (total - doubled)
        yield Finding(
            check=CHECK,
            status="fail",
            says=f"{first!r} and {second!r} are one matrix stored twice; {share:.0%} of the weights are doubled",
            remedy="tie the weights in the graph: one initializer, transposed where it is used",
            data={"doubled_bytes": doubled, "total_bytes": total},
        )


def _weights(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Initializers, and values of Constant nodes under the names of their outputs, in subgraphs and functions too."""
    import onnx

    for message in messages(model):
        if isinstance(message, onnx.GraphProto):
            yield from message.initializer
        if isinstance(message, onnx.NodeProto) and message.op_type == "Constant" and message.output:
            for attribute in message.attribute:
                if attribute.name == "value":
                    tensor = onnx.TensorProto()
                    tensor.CopyFrom(attribute.t)
                    tensor.name = message.output[0]
                    yield tensor


def _alike(tensor: onnx.TensorProto) -> tuple[int, ...]:
    """What two tensors share that may be one, or its transpose, or have axes of size 1 besides."""
    return tensor.data_type, *sorted(dim for dim in tensor.dims if dim != 1)


def _array(tensor: onnx.TensorProto, folder: Path) -> Array:
    """The values of a tensor with elements; external ones stay mapped on disk."""
    from onnx import helper, numpy_helper

    if not is_external(tensor):
        return np.asarray(numpy_helper.to_array(tensor))
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    offset, _ = external_range(tensor)
    path = external_path(tensor, folder)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=tuple(tensor.dims))


def _blocks(array: Array) -> Iterator[Array]:
    """An array in pieces of its first axis, each contiguous: copies stay small beside a matrix mapped on disk."""
    rows = max(1, BLOCK_BYTES * len(array) // max(1, array.nbytes))
    for start in range(0, len(array), rows):
        yield np.ascontiguousarray(array[start : start + rows])


def _digest(array: Array) -> bytes:
    digest = hashlib.sha256(repr((array.shape, array.dtype.str)).encode())
    for block in _blocks(array):
        digest.update(block.view(np.uint8).data)
    return digest.digest()


def _constant(array: Array) -> bool:
    """Whether an array holds one value all over."""
    first = array.flat[0]
    return all(bool((block == first).all()) for block in _blocks(array))


def _old_softmax(candidate: Candidate) -> Iterator[Finding]:
    """Before opset 13 Softmax flattens all axes from `axis` on; runtimes read such files in two ways."""
    if candidate.opset >= 13:
        return
    ranks = {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*candidate.proto.graph.input, *candidate.proto.graph.value_info, *candidate.proto.graph.output)
    }
    for node in candidate.nodes:
        if node.op_type not in SOFTMAX:
            continue
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
        rank = next((ranks[name] for name in (*node.input[:1], *node.output[:1]) if name in ranks), None)
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
    custom = sorted({node.domain for node in candidate.nodes} - {"", "ai.onnx"})
    if custom:
        yield Finding(check=CHECK, status="note", says=f"operators beyond the standard: {', '.join(custom)}")


def _fusions(candidate: Candidate) -> Iterator[Finding]:
    """Attention that stands there in pieces is right, but no fused kernel will run it."""
    for piece in in_pieces(candidate.nodes):
        if piece.startswith("Attention"):
            yield Finding(
                check=CHECK,
                status="note",
                says=f"attention is not fused: {piece}",
                remedy="isorun export MODEL.onnx --for ort-cpu -o DIR fuses it where its mask allows, and proves it",
            )
