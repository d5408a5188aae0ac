"""Where a run took place: the header that makes two runs comparable, or says why they are not."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("isorun", "torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "onnxruntime-gpu", "numpy")


def describe(threads: int) -> dict[str, Any]:
    """Processor, cores, memory, system and versions; a fact that this system does not tell is left out."""
    facts = {
        "processor": processor(),
        "cores": cores(),
        "threads": threads,
        "memory_bytes": psutil.virtual_memory().total,
        "os": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }
    return {key: value for key, value in facts.items() if value}


def cores() -> int:
    """The cores that this process may really use: its affinity, and the CPU quota of its container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, _quota() or allowed))


def processor() -> str:
    """The processor's name, as precisely as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name") or platform.machine()
    kind = " ".join(f"{key} {facts[key]}" for key in ("cpu family", "model", "stepping") if key in facts)
    return f"{name} ({kind})" if kind else name


def _quota() -> int | None:
    """Whole cores of a cgroup's CPU quota (at least 1), or None without one."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, int(limit) // int(period))
    except (OSError, ValueError):
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
