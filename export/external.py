"""The weights of a model file that lie in other files: where, and how much of them. Names in a file are not trusted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from .artifact import ArtifactError

if TYPE_CHECKING:
    import onnx
    from google.protobuf.message import Message  # type: ignore[import-untyped]


def messages(root: Message) -> Iterator[Message]:
    """A protobuf message and all that it holds; an explicit stack, since a hostile file may nest deeply."""
    stack = [root]
    while stack:
        current = stack.pop()
        yield current
        for field, value in current.ListFields():
            if field.type == field.TYPE_MESSAGE:
                stack.extend(value if field.is_repeated else [value])


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor that a file stores: initializers, dense and sparse, and attributes, wherever they are."""
    import onnx

    return (message for message in messages(model) if isinstance(message, onnx.TensorProto))


def is_external(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor's elements lie in another file."""
    return tensor.data_location == tensor.EXTERNAL or bool(tensor.external_data)


def external_path(tensor: onnx.TensorProto, folder: Path) -> Path:
    """Where the elements of a tensor lie.

    Raises:
        ArtifactError: outside the model's folder. Links count as where they lead, except inside the cache of one
            repository, whose snapshots link to its blobs.
    """
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    given = PurePosixPath(location), PureWindowsPath(location)
    if not location or any(path.is_absolute() or path.drive or ".." in path.parts for path in given):
        raise ArtifactError(f"tensor {tensor.name!r} names the file {location!r}, outside the model's folder")
    path = folder / location
    home = folder.resolve()
    root = home.parent.parent if home.parent.name == "snapshots" else home
    if "\0" in location or not Path(os.path.realpath(path)).is_relative_to(root):
        raise ArtifactError(f"tensor {tensor.name!r}: {location!r} is a link out of the model's folder")
    return path


def external_range(tensor: onnx.TensorProto) -> tuple[int, int | None]:
    """Offset and length of external elements, as the file declares them.

    Raises:
        ArtifactError: not numbers, or negative.
    """
    declared = {entry.key: entry.value for entry in tensor.external_data}
    try:
        offset = int(declared.get("offset", "0") or 0)
        length = int(declared["length"]) if declared.get("length") else None
    except ValueError:
        raise ArtifactError(f"tensor {tensor.name!r}: offset or length is not a number") from None
    if offset < 0 or (length is not None and length < 0):
        raise ArtifactError(f"tensor {tensor.name!r}: offset {offset}, length {length}")
    return offset, length


def exists(path: Path) -> bool:
    """Whether a file is there; a name that no file system takes is not."""
    try:
        return path.is_file()
    except OSError:
        return False
