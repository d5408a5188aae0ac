"""PyTorch, eager, on the CPU and on CUDA: the source model itself."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .base import Placement, RuntimeFailure

if TYPE_CHECKING:
    import torch

    from ..export.artifact import ExportedModel
    from ..models.phases import PhaseModule
    from ..models.signature import Array, Feeds


class Torch:
    """Eager PyTorch on one device."""

    def __init__(self, name: str, device: str) -> None:
        self.name = name
        self.device = device

    def missing(self) -> str | None:
        """None, or what is wrong and what to install."""
        if find_spec("torch") is None:
            return "PyTorch is not installed: pip install torch"
        if self.device == "cuda":
            import torch

            if not torch.cuda.is_available():
                return f"PyTorch {torch.__version__} sees no CUDA device: install a CUDA build and its driver"
        return None

    def prepare(self, artifact: ExportedModel, threads: int, *, optimise: bool = True) -> TorchSession:
        """Rebuild the source model from the manifest; eager code has no optimisation to switch off.

        Raises:
            RuntimeFailure: the source cannot be built here.
        """
        import torch

        torch.set_num_threads(threads)
        try:
            module = artifact.module().to(self.device)
        except (RuntimeError, ImportError) as error:
            raise RuntimeFailure(f"{self.name} cannot build {artifact.source.name}: {_first_line(error)}") from error
        return TorchSession(module, self.device, artifact.dtype, threads)


class TorchSession:
    """The source module, in inference mode."""

    def __init__(self, module: PhaseModule, device: str, dtype: str, threads: int) -> None:
        self._module = module
        self._device = device
        self._dtype = dtype
        self._threads = threads

    def stage(self, feeds: Feeds) -> list[torch.Tensor]:
        """Copies of the feeds on the device, in the signature's order."""
        import torch

        return [torch.tensor(feeds[spec.name], device=self._device) for spec in self._module.signature.inputs]

    def run(self, staged: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """One synchronous call."""
        import torch

        try:
            with torch.inference_mode():
                outputs: tuple[torch.Tensor, ...] = self._module(*staged)
            if self._device == "cuda":
                torch.cuda.synchronize()
        except RuntimeError as error:
            raise RuntimeFailure(f"torch failed: {_first_line(error)}") from error
        return outputs

    def fetch(self, raw: tuple[torch.Tensor, ...]) -> dict[str, Array]:
        """Outputs by name, on the host."""
        names = (spec.name for spec in self._module.signature.outputs)
        return {name: tensor.cpu().numpy() for name, tensor in zip(names, raw, strict=True)}

    def placement(self) -> Placement:
        """One device, no graph."""
        return Placement(provider=f"torch {self._device}", nodes={}, precision=self._dtype, threads=self._threads)

    def close(self) -> None:
        """Drop the module."""
        del self._module


def _first_line(error: Exception) -> str:
    text: Any = str(error).strip() or type(error).__name__
    return str(text.splitlines()[0])


RUNTIMES = (Torch("torch", "cpu"), Torch("torch-cuda", "cuda"))
