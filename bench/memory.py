"""Memory of this process, now and at its peak, and its parts. Standard library only.

A process gets its peak by `reset_peak` … `peak_bytes`, so that each length has its own and not the largest so far.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
CACHED = ("past_key_values.", "present.")


def resident_bytes() -> int:
    """Bytes of this process in memory now; without /proc the most that there ever were."""
    return _status("VmRSS") or _most()


def peak_bytes() -> int:
    """The most bytes in memory at a time since `reset_peak`; without /proc since the process began."""
    return _status("VmHWM") or _most()


def reset_peak() -> None:
    """Count the peak from here on, where the system can: Linux, see proc(5) on clear_refs."""
    with suppress(OSError):
        CLEAR.write_text("5")


def parts(*, empty: int, loaded: int, after: int, peak: int, cache: int) -> dict[str, int]:
    """What the memory of a process went to, in bytes: weights, cache, arena and activations.

    Given are resident bytes before the model was loaded (`empty`), with it (`loaded`), after the calls, and at their
    peak; `cache` are the bytes of the past and the present among the inputs and outputs. What stays behind after a call
    is the arena, from which the next call takes its activations again; what is given back are activations alone. The
    libraries (`empty`) are no part of it.
    """
    arena = max(0, after - loaded - cache)
    return {
        "weights": max(0, loaded - empty),
        "cache": cache,
        "arena": arena,
        "activations": max(0, peak - loaded - cache - arena),
    }


def cache_bytes(sizes: dict[str, int]) -> int:
    """Bytes of the cached tensors among named ones."""
    return sum(size for name, size in sizes.items() if name.startswith(CACHED))


def _status(key: str) -> int | None:
    """A line of /proc/self/status, in bytes."""
    try:
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{key}:"))
    except (OSError, StopIteration):
        return None
    return int(line.split()[1]) * 1024


def _most() -> int:
    scale = 1024 if os.uname().sysname == "Linux" else 1  # elsewhere it is bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
