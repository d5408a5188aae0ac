"""torch.compile, on the CPU and on CUDA: whole graphs alone, compiled anew for every shape, and counted.

A graph that breaks would run in eager mode in parts, and one that is compiled too often would do so as a whole, both in
silence. Here either is a failure with its reason, so that nothing eager is ever timed as compiled.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .base import RuntimeFailure
from .pytorch import Torch, TorchSession

if TYPE_CHECKING:
    import torch

    from ..export.artifact import ExportedModel
    from ..models.phases import PhaseModule
    from ..models.signature import Feeds

COMPILERS = ("g++", "clang++", "c++")


class TorchCompile(Torch):
    """PyTorch with TorchInductor on one device."""

    def missing(self) -> str | None:
        """None, or what is wrong and what to install: generated code has to be compiled here."""
        problem = super().missing()
        if problem:
            return problem
        named = os.environ.get("CXX")
        if not any(shutil.which(name) for name in ([named] if named else COMPILERS)):
            return f"torch.compile needs a C++ compiler, and there is no {named or 'g++'}: apt-get install g++"
        if self.device == "cuda" and find_spec("triton") is None:
            return "torch.compile needs Triton on CUDA: pip install triton"
        return None

    def prepare(self, artifact: ExportedModel, threads: int, *, optimise: bool = True) -> CompiledSession:
        """Rebuild the source model; it is compiled when its shapes are known. `optimise` off captures the graph alone.

        Raises:
            RuntimeFailure: the source cannot be built here.
        """
        module = self.build(artifact, threads)
        backend = "inductor" if optimise else "aot_eager"
        return CompiledSession(module, self.device, artifact.dtype, threads, backend)


class CompiledSession(TorchSession):
    """The source module, compiled for the shapes that are staged."""

    def __init__(self, module: PhaseModule, device: str, dtype: str, threads: int, backend: str) -> None:
        super().__init__(module, device, dtype, threads)
        self._backend = backend
        self._total = self._compilations = 0

    def stage(self, feeds: Feeds) -> list[torch.Tensor]:
        """Put the feeds in place, and forget what was compiled for other shapes: it counts against a limit."""
        import torch
        import torch._dynamo.compiled_autograd  # torch.compiler.reset counts on it
        import torch._inductor.config

        torch._inductor.config.compile_threads = 1  # a pool of compiling processes would stay beside what is timed
        torch.compiler.reset()
        self._compilations = 0
        self._call = torch.compile(self._module, fullgraph=True, dynamic=False, backend=self._compile)
        return super().stage(feeds)

    def run(self, staged: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """One synchronous call; the first one of a shape compiles.

        Raises:
            RuntimeFailure: the graph breaks, was not compiled, or was compiled again for the same shapes.
        """
        from torch._dynamo.exc import TorchDynamoException

        try:
            outputs = super().run(staged)
        except RuntimeFailure as error:
            cause = error.__cause__
            if isinstance(cause, TorchDynamoException):
                raise RuntimeFailure(f"would fall back to eager: {' '.join(str(cause).split())[:300]}") from cause
            raise
        if self._compilations != 1:
            raise RuntimeFailure(f"one shape should be compiled once, and was {self._compilations} times")
        return outputs

    def _compile(self, graph: Any, inputs: list[torch.Tensor]) -> Any:
        from torch._dynamo import lookup_backend

        self._total += 1
        self._compilations += 1
        return lookup_backend(self._backend)(graph, inputs)

    def _facts(self) -> dict[str, str]:
        return {**super()._facts(), "compilations": str(self._total), "backend": self._backend}


RUNTIMES = (TorchCompile("torch-compile", "cpu"), TorchCompile("torch-compile-cuda", "cuda"))
