"""What this machine has: free memory, and products of bytes that do not saturate."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import psutil

X86 = ("x86_64", "amd64", "i386", "i686")


def free_bytes() -> int:
    """Bytes that can be taken without pushing others out; without /proc what the system calls free at least."""
    try:
        return int(psutil.virtual_memory().available)
    except OSError:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def saturates(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether ONNX Runtime adds up products of uint8 and int8 in 16 bits here: on x86 without VNNI, or if not told."""
    if platform.machine().lower() not in X86:
        return False
    try:
        flags = re.search(r"^flags\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        return True
    return flags is None or not any("vnni" in flag for flag in flags[1].split())
