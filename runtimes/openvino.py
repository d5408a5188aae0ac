"""OpenVINO on the CPU, in float32: an ONNX model, or a converted one (.xml)."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from .base import Placement, RuntimeFailure, one_line

if TYPE_CHECKING:
    from ..export.artifact import ExportedModel
    from ..models.signature import Array, Feeds


# Where in its own source each layer of OpenVINO threw, which stands before what it says.
_PLACES = re.compile(r"(?:Exception from|Check '[^']*' failed at) \S+:\d+:")


class OpenVino:
    """OpenVINO's CPU plugin.

    Three of its defaults are changed. On processors with bfloat16 it computes float32 models in bfloat16 unless the
    precision is given. Where weights are stored as integers it also quantises activations, which the graph does not
    say. And a session whose first call has length 1 returns wrong values at every later length unless its cache of
    compiled shapes is off.
    """

    name = "openvino"

    def missing(self) -> str | None:
        """None, or what to install."""
        return None if find_spec("openvino") else "OpenVINO is not installed: pip install 'isorun[openvino]'"

    def prepare(self, artifact: ExportedModel, threads: int, *, optimise: bool = True) -> OpenVinoSession:
        """Compile a model; OpenVINO has no switch for its optimisations, so `optimise` changes nothing.

        Raises:
            RuntimeFailure: OpenVINO refuses the model.
        """
        import openvino

        options = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
            "CPU_RUNTIME_CACHE_CAPACITY": 0,
        }
        try:
            compiled = openvino.Core().compile_model(str(artifact.model_path), "CPU", options)
        except RuntimeError as error:
            raise RuntimeFailure(f"openvino refuses the model: {_said(error)}") from error
        return OpenVinoSession(compiled, _output_names(artifact), threads)


class OpenVinoSession:
    """A compiled model with one request."""

    def __init__(self, compiled: Any, names: list[str], threads: int) -> None:
        self._compiled = compiled
        self._names = names
        self._request = compiled.create_infer_request()
        self._threads = threads

    def stage(self, feeds: Feeds) -> dict[int, Array]:
        """Contiguous feeds by place in the order of inputs, which tells what is what if OpenVINO renames one."""
        given = list(feeds)
        ports = enumerate(self._compiled.inputs)
        names = (next((name for name in port.get_names() if name in feeds), given[i]) for i, port in ports)
        return {i: np.asarray(feeds[name], order="C") for i, name in enumerate(names)}  # a scalar stays one

    def run(self, staged: dict[int, Array]) -> Any:
        """One synchronous call; the results stay in the request."""
        try:
            return self._request.infer(staged, share_inputs=True, share_outputs=True)
        except RuntimeError as error:
            raise RuntimeFailure(f"openvino failed: {_said(error)}") from error

    def fetch(self, raw: Any) -> dict[str, Array]:
        """Copies of the outputs by their names in the ONNX graph; a converted model has names of its own, or places."""
        ports = self._compiled.outputs
        names = self._names or [next(iter(port.get_names()), f"output {i}") for i, port in enumerate(ports)]
        return {name: np.array(raw[i]) for i, name in enumerate(names)}

    def placement(self) -> Placement:
        """The precision that OpenVINO says it computes in."""
        precision = str(self._compiled.get_property("INFERENCE_PRECISION_HINT").to_string())
        nodes = {"CPU": len(self._compiled.get_runtime_model().get_ops())}
        return Placement(provider="OpenVINO CPU", nodes=nodes, precision=precision, threads=self._threads)

    def close(self) -> None:
        """Free the model."""
        del self._request, self._compiled


def _output_names(artifact: ExportedModel) -> list[str]:
    """The outputs as the ONNX graph calls them, in its order, which OpenVINO keeps while it may rename them."""
    if artifact.model_path.suffix != ".onnx":
        return []
    return [spec.name for spec in artifact.signature().outputs]


def _said(error: RuntimeError) -> str:
    return one_line(RuntimeError(_PLACES.sub("", str(error))))


RUNTIMES = (OpenVino(),)
