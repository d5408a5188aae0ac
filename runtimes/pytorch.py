"""PyTorch, eager, on the CPU and on CUDA: the source model itself."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..export.artifact import QUANTISED
from .base import Placement, RuntimeFailure, Unsuited

if TYPE_CHECKING:
    import torch

    from ..export.artifact import ExportedModel
    from ..models.phases import PhaseModule
    from ..models.signature import Array, Feeds

TYPES = {"fp16": "float16", "bf16": "bfloat16"}  # torch's names of the half types; the rest stays as it is
# What computes attention, by the part of the operator's name that says so; in any other case it is plain products.
BACKENDS = {"flash": "flash", "efficient": "efficient", "cudnn": "cuDNN"}


class Torch:
    """Eager PyTorch on one device."""

    def __init__(self, name: str, device: str) -> None:
        self.name = name
        self.device = device

    def missing(self) -> str | None:
        """None, or what is wrong and what to install."""
        if find_spec("torch") is None:
            return "PyTorch is not installed: pip install torch"
        try:
            import torch
        except (ImportError, OSError) as error:
            return f"PyTorch is installed and cannot be loaded: {first_line(error)}"
        if self.device == "cuda" and not torch.cuda.is_available():
            return f"PyTorch {torch.__version__} sees no CUDA device: install a CUDA build and its driver"
        return None

    def prepare(self, artifact: ExportedModel, threads: int, *, optimise: bool = True) -> TorchSession:
        """Rebuild the source model from the manifest; eager code has no optimisation to switch off.

        Raises:
            RuntimeFailure: the source cannot be built here.
            Unsuited: the graph is quantised, and its source is not.
        """
        return TorchSession(self.build(artifact, threads), self.device, artifact.dtype, threads)

    def build(self, artifact: ExportedModel, threads: int) -> PhaseModule:
        """The source model on the device, in half where the export is, with float32 products in float32: no TF32.

        Raises:
            RuntimeFailure: the source cannot be built here.
            Unsuited: the graph is quantised, and its source is not.
        """
        import torch

        if artifact.dtype in QUANTISED:
            raise Unsuited(f"{self.name} runs the source, and only the graph is {artifact.dtype}")
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        try:
            return artifact.module().to(self.device, getattr(torch, TYPES.get(artifact.dtype, ""), None))
        except (RuntimeError, ImportError) as error:
            raise RuntimeFailure(f"{self.name} cannot build {artifact.source.name}: {first_line(error)}") from error


class TorchSession:
    """The source module, in inference mode."""

    def __init__(self, module: PhaseModule, device: str, dtype: str, threads: int) -> None:
        self._module = module
        self._call: Any = module
        self._device = device
        self._dtype = dtype
        self._threads = threads
        self._staged: list[torch.Tensor] | None = None
        self._steady = ExitStack()

    def stage(self, feeds: Feeds) -> list[torch.Tensor]:
        """Copies of the feeds on the device, in the signature's order.

        A module that has something to prepare for calls of one shape (`steady`) does so here, and not in each call.
        """
        import torch

        self._steady.close()
        if steady := getattr(self._module, "steady", None):
            self._steady.enter_context(steady())
        if self._device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        given = (torch.tensor(feeds[spec.name], device=self._device) for spec in self._module.signature.inputs)
        half = getattr(torch, TYPES.get(self._dtype, ""), None)
        self._staged = [tensor.to(half) if half and tensor.is_floating_point() else tensor for tensor in given]
        return self._staged

    def run(self, staged: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """One synchronous call."""
        import torch

        try:
            with torch.inference_mode():
                outputs: tuple[torch.Tensor, ...] = self._call(*staged)
            if self._device == "cuda":
                torch.cuda.synchronize()
        except RuntimeError as error:
            raise RuntimeFailure(f"torch failed: {first_line(error)}") from error
        return outputs

    def fetch(self, raw: tuple[torch.Tensor, ...]) -> dict[str, Array]:
        """Outputs by name, on the host."""
        names = (spec.name for spec in self._module.signature.outputs)
        tensors = (tensor.float() if self._dtype == "bf16" else tensor for tensor in raw)  # NumPy has no bfloat16
        return {name: tensor.cpu().numpy() for name, tensor in zip(names, tensors, strict=True)}

    def placement(self) -> Placement:
        """One device, no graph; what computes attention is seen in one more call of the source."""
        return Placement(
            provider=f"torch {self._device}",
            nodes={},
            precision=self._dtype,
            threads=self._threads,
            facts=self._facts(),
        )

    def close(self) -> None:
        """Drop the module."""
        self._steady.close()
        del self._module, self._call

    def _facts(self) -> dict[str, str]:
        import torch

        facts = {"device": self._device}
        if self._device == "cuda":
            facts |= {"tf32": "off", "device bytes at the peak": str(torch.cuda.max_memory_allocated())}
        if self._staged is not None:
            facts["attention"] = attention(self._module, self._staged)
        return facts


def attention(module: PhaseModule, inputs: list[torch.Tensor]) -> str:
    """What computes attention in a call: "flash", "efficient", "cuDNN", or "math" for plain products."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: set[str] = set()

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = str(func)
            if "scaled_dot_product" in name:
                seen.update(word for part, word in BACKENDS.items() if part in name)
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Watch():  # type: ignore[no-untyped-call]
        module(*inputs)
    return ", ".join(sorted(seen)) or "math"


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its type."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


RUNTIMES = (Torch("torch", "cpu"), Torch("torch-cuda", "cuda"))
