"""Writing a file whole or not at all."""

from __future__ import annotations

from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Write beside the file, then put it in its place.

    Raises:
        OSError: the folder cannot be written to.
    """
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    part.replace(path)
