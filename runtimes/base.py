"""The protocols of a runtime. Prepare once, run often; only `run` is ever timed, and it ends when the work is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..export.artifact import ExportedModel
    from ..models.signature import Array, Feeds


class RuntimeFailure(Exception):
    """A runtime's own failure, mapped at the boundary: it becomes a row with this reason, never a traceback."""


class Unsuited(RuntimeFailure):
    """A runtime runs no graphs of this kind at all, on any machine: the row was skipped, and nothing has failed."""


def one_line(error: Exception) -> str:
    """What an exception says, in one line of bounded length; its class where it says nothing."""
    return " ".join(str(error).split())[:300] or type(error).__name__


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a session runs: its execution provider, nodes by provider, precision of the arithmetic, and threads.

    `facts` are what else must be equal, or at least said, when times are compared: the device, TF32, what computes
    attention, compilations.
    """

    provider: str
    nodes: Mapping[str, int]
    precision: str
    threads: int
    facts: Mapping[str, str] = field(default_factory=dict)


class Session(Protocol):
    """An exported model, loaded and ready. `Staged` and `Raw` are the runtime's own (device tensors, bindings)."""

    def stage(self, feeds: Feeds) -> Any:
        """Host to device, contiguous; untimed."""

    def run(self, staged: Any) -> Any:
        """The work itself, synchronous; results stay on the device."""

    def fetch(self, raw: Any) -> dict[str, Array]:
        """Device to host, by output name; untimed."""

    def placement(self) -> Placement:
        """What really ran where."""

    def close(self) -> None:
        """Free what the session holds."""


class Runtime(Protocol):
    """One way to run an exported model."""

    name: str

    def missing(self) -> str | None:
        """None, or the reason why it cannot run here and what to install."""

    def prepare(self, artifact: ExportedModel, threads: int, *, optimise: bool = True) -> Session:
        """Load a model; `optimise` off asks for the graph as it is, where the runtime has such a switch.

        Raises:
            RuntimeFailure: the runtime refuses the model, or would run it elsewhere than asked.
            Unsuited: it runs no graphs of this kind.
        """
