"""TensorRT through ONNX Runtime: engines are built for each shape, cached in the model's folder, and counted."""

from __future__ import annotations

import time
from ctypes.util import find_library
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from .ort import OnnxRuntime, OrtSession

if TYPE_CHECKING:
    from ..export.artifact import ExportedModel

BEGAN = time.time()  # an engine that is older comes from the cache
ENGINES = "tensorrt"  # folder of the engines, beside the model
PRECISIONS = {"fp16": "trt_fp16_enable", "bf16": "trt_bf16_enable"}


class TensorRT(OnnxRuntime):
    """ONNX Runtime with TensorRT, and CUDA for the nodes that TensorRT does not take."""

    def __init__(self) -> None:
        super().__init__("ort-tensorrt", "TensorrtExecutionProvider", "cuda")

    def missing(self) -> str | None:
        """None, or what is wrong and what to install: the wheel brings the provider, but not TensorRT itself."""
        problem = super().missing()
        if problem is None and find_spec("tensorrt_libs") is None and find_library("nvinfer") is None:
            return "TensorRT's libraries are not installed: pip install tensorrt"
        return problem

    def prepare(self, artifact: ExportedModel, threads: int, *, optimise: bool = True) -> OrtSession:
        """Load a model; its engines are built when a shape is first run, in the warm-up, and kept in its folder.

        Raises:
            RuntimeFailure: ONNX Runtime refuses the model or the provider.
        """
        if find_spec("tensorrt_libs") is not None:
            import_module("tensorrt_libs")  # loads the libraries, which are on no path of the system
        (artifact.folder / ENGINES).mkdir(exist_ok=True)
        return super().prepare(artifact, threads, optimise=optimise)

    def providers(self, artifact: ExportedModel) -> list[tuple[str, dict[str, str]]]:
        """TensorRT with its caches, then CUDA."""
        cache = str(artifact.folder / ENGINES)
        options = {
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": cache,
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": cache,
        }
        if artifact.dtype in PRECISIONS:
            options[PRECISIONS[artifact.dtype]] = "1"
        return [(self.provider, options), ("CUDAExecutionProvider", {"use_tf32": "0"})]

    def facts(self, folder: Path) -> dict[str, str]:
        """Engines built by this process. TensorRT multiplies float32 in TF32 where it can: there is no switch."""
        engines = (folder / ENGINES).glob("*.engine")
        built = sum(engine.stat().st_mtime >= BEGAN for engine in engines)
        return {"device": self.device, "tf32": "on in TensorRT", "engines built": str(built)}


RUNTIMES = (TensorRT(),)
