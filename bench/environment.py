"""Where a run took place: the header that makes two runs comparable, or says why they are not."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..export import machine

PACKAGES = (
    "isorun",
    "torch",
    "onnx",
    "onnxscript",
    "onnx-ir",
    "onnxruntime",
    "onnxruntime-gpu",
    "openvino",
    "tensorrt",
    "numpy",
)


def describe(threads: int) -> dict[str, Any]:
    """Processor, cores, memory, system and versions; a fact that this system does not tell is left out."""
    facts = {
        "processor": processor(),
        "cores": cores(),
        "threads": threads,
        "memory_bytes": memory_bytes(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "versions": versions(),
    }
    return {key: value for key, value in facts.items() if value}


def versions() -> dict[str, str]:
    """Of the packages that decide about times, those that are installed."""
    return {name: found for name in PACKAGES if (found := _version(name))}


def cores() -> int:
    """The whole cores that this process may really use, at least 1: its affinity, and its container's CPU quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for group in control_groups() if (quota := _quota(group)) is not None]
    return max(1, int(min([allowed, *quotas])))


def memory_bytes() -> int | None:
    """The memory that this process may use: the machine's, or less where its container has a limit."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # not told
        return None
    limits = [limit for group in control_groups() if (limit := _memory_limit(group)) is not None]
    return min([machine, *limits])


def free_bytes() -> int:
    """The memory that a new process may take without pushing others out, or beyond its container's limit."""
    return min(machine.free_bytes(), memory_bytes() or sys.maxsize)


def control_groups(root: Path = Path("/sys/fs/cgroup"), mine: Path = Path("/proc/self/cgroup")) -> list[Path]:
    """The folders that hold this process's limits: its control groups and all above them, in both versions of cgroups.

    In a container the root is its own group. Without /proc nothing else is known.
    """
    folders = {root, root / "cpu", root / "memory"}
    try:
        lines = mine.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)  # "0::/a/b" (version 2), "4:cpu,cpuacct:/a/b" (version 1)
        for controller in controllers.split(","):
            group = root / controller / path.lstrip("/")
            folders |= {group, *(above for above in group.parents if above.is_relative_to(root))}
    return sorted(folders)


def _quota(group: Path) -> float | None:
    """Cores by the CPU quota of a control group, or None without one."""
    try:
        if (group / "cpu.max").exists():
            limit, period = (group / "cpu.max").read_text().split()
        else:
            limit, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(limit) / int(period) if int(limit) > 0 else None
    except (OSError, ValueError):  # not there, or "max"
        return None


def _memory_limit(group: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            return int((group / name).read_text())
        except (OSError, ValueError):  # not there, or "max"
            continue
    return None


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


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
