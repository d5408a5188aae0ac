"""ONNX Runtime: one runtime per execution provider. Its process never imports torch."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from ..export.machine import saturates
from .base import Placement, RuntimeFailure, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..export.artifact import ExportedModel
    from ..models.signature import Array, Feeds

WHEELS = ("onnxruntime", "onnxruntime-gpu")
# What a manifest may ask of a session: it comes from outside, and others of ONNX Runtime's options write or load files.
SWITCHES = ("enable_cpu_mem_arena", "enable_mem_pattern")
# Threads wait awake for more work, by default for some 30 ms, which the process that is timed next would lack.
SPIN_US = "1000"  # longer than between two operators or two calls that follow each other
EXACT_INT8 = "session.x64quantprecision"  # products without saturation, slow where the processor has them anyway
ENTRIES = ("session.intra_op.allow_spinning", "session.set_denormal_as_zero", EXACT_INT8)


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

        if self.device == "cuda":
            _preload(onnxruntime)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.spin_duration_us", SPIN_US)
        disabled = configure(options, artifact.session, onnxruntime)
        if not optimise:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4  # failures arrive as exceptions
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        try:
            session = onnxruntime.InferenceSession(
                str(artifact.model_path), options, providers=self.providers(artifact), disabled_optimizers=disabled
            )
        except Exception as error:  # onnxruntime's exceptions share no base class below Exception
            raise RuntimeFailure(f"{self.name} refuses the model: {one_line(error)}") from error
        if session.get_providers()[0] != self.provider:
            raise RuntimeFailure(f"{self.name} asked for {self.provider} and got {session.get_providers()[0]}")
        return OrtSession(session, self, artifact, threads)

    def providers(self, artifact: ExportedModel) -> list[tuple[str, dict[str, str]]]:
        """The providers to load a model with, and their options: TF32 is off, as it is in torch."""
        return [(self.provider, {"use_tf32": "0"} if self.device == "cuda" else {})]

    def facts(self, folder: Path) -> dict[str, str]:
        """What must be equal, or said, when times are compared."""
        return {"device": self.device, **({"tf32": "off"} if self.device == "cuda" else {})}


class OrtSession:
    """A loaded model with its inputs bound on the device."""

    def __init__(self, session: Any, runtime: OnnxRuntime, artifact: ExportedModel, threads: int) -> None:
        self._session = session
        self._runtime = runtime
        self._folder = artifact.folder
        self._dtype = artifact.dtype
        self._threads = threads
        self._shapes = {output.name: output.shape for output in session.get_outputs()}
        self._aliases = artifact.aliases

    def stage(self, feeds: Feeds) -> Any:
        """Copy the feeds to the device and bind them; outputs are left to be allocated on the device.

        A past that shares its buffer with its present gets one as long as the present, and is bound as both.
        """
        import onnxruntime

        binding = self._session.io_binding()
        device = self._runtime.device
        inputs = self._session.get_inputs()
        axes = {
            dim: size
            for spec in inputs
            for dim, size in zip(spec.shape, feeds[spec.name].shape, strict=False)
            if isinstance(dim, str)
        }
        presents = {past: self._shapes[present] for present, past in self._aliases.items()}
        values = {}
        for spec in inputs:
            array = np.asarray(feeds[spec.name], order="C")  # a scalar stays one
            if spec.name in presents:
                array = _longer(array, [axes.get(dim, dim) for dim in presents[spec.name]])
            values[spec.name] = onnxruntime.OrtValue.ortvalue_from_numpy(array, device, 0)
            binding.bind_ortvalue_input(spec.name, values[spec.name])
        for name in self._shapes:
            if name in self._aliases:
                binding.bind_ortvalue_output(name, values[self._aliases[name]])
            else:
                binding.bind_output(name, device)
        binding.synchronize_inputs()
        return binding

    def run(self, staged: Any) -> Any:
        """One synchronous call; outputs stay on the device."""
        try:
            self._session.run_with_iobinding(staged)
            staged.synchronize_outputs()
        except Exception as error:  # as in prepare
            raise RuntimeFailure(f"{self._runtime.name} failed: {one_line(error)}") from error
        return staged

    def fetch(self, raw: Any) -> dict[str, Array]:
        """Outputs by name, on the host."""
        return dict(zip(self._shapes, raw.copy_outputs_to_cpu(), strict=True))

    def placement(self) -> Placement:
        """Nodes by provider, as ONNX Runtime assigned them."""
        assigned = self._session.get_provider_graph_assignment_info()
        nodes: Counter[str] = Counter()
        for subgraph in assigned:
            nodes[subgraph.ep_name] += len(subgraph.get_nodes())
        return Placement(
            provider=self._runtime.provider,
            nodes=dict(nodes),
            precision=self._dtype,
            threads=self._threads,
            facts=self._runtime.facts(self._folder),
        )

    def close(self) -> None:
        """Drop the session."""
        self._session = None


def configure(options: Any, session: Mapping[str, str], onnxruntime: Any) -> list[str]:
    """Set an artifact's session options; the optimisers to leave out, which go to the session itself.

    Names are those of ONNX Runtime: `SWITCHES` are attributes of SessionOptions and `ENTRIES` configuration entries,
    both "0" or "1"; `disabled_optimizers` are names, and `graph_optimization_level` is one of its own: ORT_DISABLE_ALL,
    ORT_ENABLE_BASIC, … . `EXACT_INT8` is left out where the processor does not need it.

    Raises:
        RuntimeFailure: any other option, or another value.
    """
    for name, value in session.items():
        if name in ENTRIES and value in ("0", "1"):
            if name != EXACT_INT8 or saturates():
                options.add_session_config_entry(name, value)
        elif name in SWITCHES and value in ("0", "1"):
            setattr(options, name, value == "1")
        elif name == "graph_optimization_level" and hasattr(onnxruntime.GraphOptimizationLevel, value):
            options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, value)
        elif name != "disabled_optimizers":
            raise RuntimeFailure(f"the manifest's session option {name} = {value!r} is none that a manifest may set")
    return session.get("disabled_optimizers", "").split()


def _longer(array: Array, shape: list[int]) -> Array:
    """The array at the start of a larger one."""
    longer = np.zeros(shape, array.dtype)
    longer[tuple(slice(size) for size in array.shape)] = array
    return longer


def _cuda_problem(onnxruntime: Any) -> str | None:
    """The provider is compiled in, but is there a device? Asked of the driver, since sessions fall back in silence."""
    _preload(onnxruntime)
    try:
        onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(1, np.float32), "cuda", 0)
    except Exception as error:  # as in prepare
        return f"no usable CUDA device: {one_line(error)}"
    return None


def _preload(onnxruntime: Any) -> None:
    """Load the CUDA libraries that torch's wheels brought and no path leads to; it prints what it misses."""
    with contextlib.redirect_stdout(io.StringIO()):
        onnxruntime.preload_dlls()


RUNTIMES = (
    OnnxRuntime("ort-cpu", "CPUExecutionProvider", "cpu"),
    OnnxRuntime("ort-cuda", "CUDAExecutionProvider", "cuda"),
)
