"""Integrity: are all the bytes there, of the declared length, and inside the model's own folder?"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from ...export.artifact import ArtifactError
from ...export.external import exists, external_path, external_range, is_external
from .candidate import Candidate
from .finding import Finding, refuse

if TYPE_CHECKING:
    import onnx

CHECK = "integrity"
MEANT = "keep the model and its weights file together, under the names that they were saved with"
BITS = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2}


def check(candidate: Candidate) -> list[Finding]:
    """One finding when all is there.

    Raises:
        Refusal: a weight outside the folder, missing, cut or of an impossible shape.
    """
    folder = candidate.path.parent
    files: dict[str, int] = {}
    for tensor in candidate.tensors:
        if is_external(tensor):
            location, size = _external(tensor, folder)
            files[location] = files.get(location, 0) + size
        else:
            _inline(tensor)
    where = ", ".join(f"{size} bytes in {name}" for name, size in files.items()) or "inside the file"
    return [Finding(check=CHECK, status="pass", says=f"all weights are there: {where}")]


def stored_bytes(tensor: onnx.TensorProto) -> int:
    """The bytes that the elements of a tensor take by its type and shape.

    Raises:
        Refusal: an unknown type, or a negative dimension.
    """
    from onnx import TensorProto, helper

    if any(dim < 0 for dim in tensor.dims):
        raise refuse(CHECK, f"tensor {tensor.name!r} has the shape {list(tensor.dims)}")
    try:
        name = TensorProto.DataType.Name(tensor.data_type)
        itemsize = int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except (ValueError, KeyError, TypeError):
        raise refuse(CHECK, f"tensor {tensor.name!r} has the unknown type {tensor.data_type}") from None
    return -(-prod(int(dim) for dim in tensor.dims) * BITS.get(name, 8 * itemsize) // 8)


def _external(tensor: onnx.TensorProto, folder: Path) -> tuple[str, int]:
    try:
        path = external_path(tensor, folder)
        offset, length = external_range(tensor)
    except ArtifactError as error:
        raise refuse(CHECK, str(error), MEANT) from None
    size = stored_bytes(tensor)
    needed = offset + (size if length is None else length)
    if length is not None and length < size:
        raise refuse(CHECK, f"tensor {tensor.name!r} needs {size} bytes, and {length} are declared in {path.name}")
    if not exists(path):
        raise refuse(CHECK, f"{path.name[:80]} is missing: tensor {tensor.name!r} needs {needed} bytes of it", MEANT)
    found = path.stat().st_size
    if found < needed:
        raise refuse(CHECK, f"{path.name} has {found} bytes and should have at least {needed}: it is cut off", MEANT)
    return path.name, size


def _inline(tensor: onnx.TensorProto) -> None:
    """Elements within the file: as raw bytes, or in the repeated field that belongs to their type."""
    from onnx import helper

    size, count = stored_bytes(tensor), prod(tensor.dims)
    what = f"tensor {tensor.name!r} of shape {list(tensor.dims)}"
    if tensor.HasField("segment"):
        raise refuse(CHECK, f"{what} is one segment of a larger one, which no runtime reads")
    if tensor.HasField("raw_data") and tensor.data_type != tensor.STRING:
        if len(tensor.raw_data) != size:
            raise refuse(CHECK, f"{what} needs {size} bytes and has {len(tensor.raw_data)} bytes")
        return
    field = helper.tensor_dtype_to_field(tensor.data_type)
    found = len(getattr(tensor, field))
    needed = count * 2 if tensor.data_type in (tensor.COMPLEX64, tensor.COMPLEX128) else count
    if tensor.DataType.Name(tensor.data_type) in BITS:
        needed = size
    if found != needed:
        raise refuse(CHECK, f"{what} needs {needed} elements in {field} and has {found}")
