"""ONNX Runtime: one runtime per execution provider. Its process never imports torch."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from .base import Placement, RuntimeFailure

if TYPE_CHECKING:
    from ..export.artifact import ExportedModel
    from ..models.signature import Array, Feeds

WHEELS = ("onnxruntime", "onnxruntime-gpu")


def wheels() -> list[str]:
    """The ONNX Runtime wheels that are installed; two of them overwrite each other's files."""
    found = []
    for wheel in WHEELS:
        try:
            version(wheel)
        except PackageNotFoundError:
            continue
        found.append(wheel)
    return found


def wheel_problem() -> str | None:
    """What is wrong with the installed wheels, and what to do; None when exactly one is there."""
    found = wheels()
    if not found:
        return "ONNX Runtime is not installed: pip install 'isorun[cpu]' (or 'isorun[gpu]' on a CUDA machine)"
    if len(found) > 1:
        both = " and ".join(found)
        return (
            f"{both} are both installed and overwrite each other: pip uninstall -y {' '.join(found)}, then install one"
        )
    return None


class OnnxRuntime:
    """ONNX Runtime on one execution provider."""

    def __init__(self, name: str, provider: str, device: str) -> None:
        self.name = name
        self.provider = provider
        self.device = device

    def missing(self) -> str | None:
        """None, or what is wrong and what to install."""
        problem = wheel_problem()
        if problem:
            return problem
        import onnxruntime

        if self.provider not in onnxruntime.get_available_providers():
            return f"this ONNX Runtime ({wheels()[0]}) has no {self.provider}: pip install 'isorun[gpu]'"
        if self.device == "cuda":
            return _cuda_problem(onnxruntime)
        return None

    def prepare(self, artifact: ExportedModel, threads: int, *, optimise: bool = True) -> OrtSession:
        """Load a model; a session that ended up on another provider is a failure, not a slower success.

        Raises:
            RuntimeFailure: ONNX Runtime refuses the model or the provider.
        """
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        if not optimise:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4  # failures arrive as exceptions
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        try:
            session = onnxruntime.InferenceSession(str(artifact.model_path), options, providers=[self.provider])
        except Exception as error:  # onnxruntime's exceptions share no base class below Exception
            raise RuntimeFailure(f"{self.name} refuses the model: {_one_line(error)}") from error
        if session.get_providers()[0] != self.provider:
            raise RuntimeFailure(f"{self.name} asked for {self.provider} and got {session.get_providers()[0]}")
        return OrtSession(session, self, artifact.dtype, threads)


class OrtSession:
    """A loaded model with its inputs bound on the device."""

    def __init__(self, session: Any, runtime: OnnxRuntime, dtype: str, threads: int) -> None:
        self._session = session
        self._runtime = runtime
        self._dtype = dtype
        self._threads = threads
        self._names = [output.name for output in session.get_outputs()]

    def stage(self, feeds: Feeds) -> Any:
        """Copy the feeds to the device and bind them; outputs are left to be allocated on the device."""
        import onnxruntime

        binding = self._session.io_binding()
        device = self._runtime.device
        for spec in self._session.get_inputs():
            array = np.ascontiguousarray(feeds[spec.name])
            binding.bind_ortvalue_input(spec.name, onnxruntime.OrtValue.ortvalue_from_numpy(array, device, 0))
        for name in self._names:
            binding.bind_output(name, device)
        binding.synchronize_inputs()
        return binding

    def run(self, staged: Any) -> Any:
        """One synchronous call; outputs stay on the device."""
        try:
            self._session.run_with_iobinding(staged)
            staged.synchronize_outputs()
        except Exception as error:  # as in prepare
            raise RuntimeFailure(f"{self._runtime.name} failed: {_one_line(error)}") from error
        return staged

    def fetch(self, raw: Any) -> dict[str, Array]:
        """Outputs by name, on the host."""
        return dict(zip(self._names, raw.copy_outputs_to_cpu(), strict=True))

    def placement(self) -> Placement:
        """Nodes by provider, as ONNX Runtime assigned them."""
        assigned = self._session.get_provider_graph_assignment_info()
        nodes: Counter[str] = Counter()
        for subgraph in assigned:
            nodes[subgraph.ep_name] += len(subgraph.get_nodes())
        return Placement(
            provider=self._runtime.provider, nodes=dict(nodes), precision=self._dtype, threads=self._threads
        )

    def close(self) -> None:
        """Drop the session."""
        self._session = None


def _cuda_problem(onnxruntime: Any) -> str | None:
    """The provider is compiled in, but is there a device? Asked of the driver, since sessions fall back in silence."""
    onnxruntime.preload_dlls()
    try:
        onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(1, np.float32), "cuda", 0)
    except Exception as error:  # as in prepare
        return f"no usable CUDA device: {_one_line(error)}"
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


RUNTIMES = (
    OnnxRuntime("ort-cpu", "CPUExecutionProvider", "cpu"),
    OnnxRuntime("ort-cuda", "CUDAExecutionProvider", "cuda"),
)
