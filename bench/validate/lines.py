"""The line of source behind a value, from the stack that torch keeps of it."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

ROOTS = (Path(__file__).parents[2], Path(sysconfig.get_path("purelib")))  # what file names are shortened by
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def deepest(stack: str) -> str:
    """The innermost frame that is not torch's own: "models/attention.py:88", or nothing."""
    frames = [(Path(match["file"]), match["line"]) for match in FRAME.finditer(stack)]
    own = [(file, line) for file, line in frames if "torch" not in file.parts]
    if not own:
        return ""
    file, line = own[-1]
    root = next((root for root in (*ROOTS, Path.cwd()) if file.is_relative_to(root)), None)
    return f"{file.relative_to(root) if root else file}:{line}"
