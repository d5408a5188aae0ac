"""Another environment beside this one: its runtimes run the same graphs, in the same rounds of blocks.

Two runs at two times differ by their code and by what the machine did meanwhile, which on a shared machine is more than
most changes. Blocks that alternate see the same machine, so that what is left between them is the code. A runtime of
the other environment, the base, is called RUNTIME@base.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .client import Worker, WorkerError
from .environment import versions
from .suitefile import SuiteError

SUFFIX = "@base"


@dataclass(frozen=True)
class Base:
    """The other environment: its interpreter, the versions that it has, and which runtimes cannot run there and why."""

    python: str
    versions: Mapping[str, str]
    missing: Mapping[str, str] = field(default_factory=dict)


def named(runtime: str) -> str:
    """What a runtime of the base is called."""
    return runtime + SUFFIX


def columns(runtimes: Sequence[str], base: Base | None) -> tuple[str, ...]:
    """All that is measured: the runtimes here, and the same of the base, if there is one."""
    return (*runtimes, *(map(named, runtimes) if base else ()))


def plain(name: str) -> str:
    """The runtime behind a name."""
    return name.removesuffix(SUFFIX)


def ask(python: str, runtimes: Sequence[str]) -> Base:
    """What an environment has, as its own interpreter says.

    Raises:
        SuiteError: it is no interpreter, or has no isorun, or another version: the same harness has to time both.
    """
    found = shutil.which(python)
    if found is None:
        raise SuiteError(f"--base {python}: no such program; give the Python of the other environment")
    path = str(Path(found).absolute())  # a link stays: it is what makes a virtual environment
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Worker(Path(folder) / "log", threads=1, python=path) as worker:
                told = worker.ask("about", runtimes=list(runtimes))
        except (WorkerError, OSError) as error:
            raise SuiteError(f"--base {python}: isorun cannot run there: {error}") from None
    here, there = versions().get("isorun"), told["versions"].get("isorun")
    if here != there:
        raise SuiteError(f"--base {python}: isorun is {there} there and {here} here; the same one has to time both")
    return Base(path, told["versions"], told["missing"])
