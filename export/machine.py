"""The memory that is free on this machine."""

from __future__ import annotations

import os

import psutil


def free_bytes() -> int:
    """Bytes that can be taken without pushing others out; without /proc what the system calls free at least."""
    try:
        return int(psutil.virtual_memory().available)
    except OSError:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
