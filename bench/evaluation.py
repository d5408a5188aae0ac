"""Evaluating a model file in a worker: any runtime, with or without its optimisations, arrays in and out as files."""

from __future__ import annotations

import resource
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..export.artifact import bare
from ..export.source import Source
from ..models.signature import Array
from ..runtimes import all_runtimes
from ..runtimes.base import RuntimeFailure, Session, one_line
from ..runtimes.reference import Float64Graph, ReferenceSession

# The model that was exported: in its own precision, in float64, and in float64 with its weights rounded to half.
SOURCES = ("source", "source64", "source-fp16", "source-bf16")
OUTPUT_SHARE = 0.1  # of the memory: outputs are compared in float64, several of them at a time


class Evaluation:
    """One model file on one runtime, or the source behind it, within a limit of address space."""

    def __init__(
        self,
        file: str,
        dtype: str,
        runtime: str,
        optimise: bool,
        memory_bytes: int,
        source: dict[str, Any],
        phase: str,
        session: dict[str, str],
    ) -> None:
        limit(memory_bytes)
        self._most = int(memory_bytes * OUTPUT_SHARE)
        self._session = _open(Path(file), dtype, runtime, optimise, Source(**source), phase, session)

    def evaluate(self, inputs: str, names: list[str], outputs: str) -> dict[str, Any]:
        """Run the arrays of one .npz and write the outputs to another; answers their names, and what ran where.

        The files call arrays by number: a model may give an input any name, also one that no file can hold.
        """
        with np.load(inputs, allow_pickle=False) as archive:
            feeds = {name: archive[f"arr_{i}"] for i, name in enumerate(names)}
        results = self._session.fetch(self._session.run(self._session.stage(feeds)))
        arrays = [_plain(name, array) for name, array in results.items()]
        size = sum(array.nbytes for array in arrays)
        if size > self._most:
            raise RuntimeFailure(f"outputs of {size / 2**30:.1f} GiB are too much to compare")
        np.savez(outputs, *arrays, allow_pickle=False)
        return {"names": list(results), "placement": asdict(self._session.placement())}


def check_file(file: str, memory_bytes: int) -> dict[str, Any]:
    """What the ONNX checker says against a file, by path: a model above 2 GiB has no other way."""
    limit(memory_bytes)
    return {"refusal": refusal(file)}


def refusal(file: str) -> str | None:
    """The same in this process, or None."""
    import onnx

    try:
        try:
            onnx.checker.check_model(file, full_check=True)
        except Exception:  # a full check infers shapes, and takes a sparse initializer for a scalar
            if not onnx.load(file, load_external_data=False).graph.sparse_initializer:
                raise
            onnx.checker.check_model(file)
    except Exception as error:  # its C++ code raises its own errors, and Python's when it cannot decode their text
        return one_line(error)
    return None


def limit(memory_bytes: int) -> None:
    """Address space for this process: what asks for more gets an error of its own, and nothing else suffers."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes if hard < 0 else min(memory_bytes, hard), hard))


def _plain(name: str, array: Any) -> Array:
    """An output as an array of a NumPy type: bfloat16 and 8-bit floats, which NumPy lacks, in float32."""
    if isinstance(array, np.ndarray) and array.dtype.kind == "V":
        array = array.astype(np.float32)
    if not isinstance(array, np.ndarray | np.generic) or array.dtype.kind not in "biuf":
        raise RuntimeFailure(f"output {name!r} is no tensor of numbers")
    return np.asarray(array)


def _open(
    file: Path, dtype: str, runtime: str, optimise: bool, source: Source, phase: str, session: dict[str, str]
) -> Session:
    """A session of the source or of the file, with the options that its manifest names; without optimisations, bare."""
    if runtime in SOURCES and source.kind == "file":
        return _paired(Path(file), Path(source.name), runtime.partition("-")[2])  # another graph is the reference
    if runtime in SOURCES:
        from .truth import source_session

        return source_session(source, phase, runtime)
    artifact = replace(bare(file, dtype), session=session if optimise else {})
    return all_runtimes()[runtime].prepare(artifact, 1, optimise=optimise)


def _paired(file: Path, reference: Path, half: str) -> Session:
    """Another graph in the names that the inputs and outputs have in the file."""
    import onnx

    from ..export.artifact import graph_signature
    from .validate.pairing import Paired, pair

    mine, theirs = (graph_signature(onnx.load(path, load_external_data=False).graph) for path in (file, reference))
    return Paired(_open_file(reference, half), pair(mine, theirs))


def _open_file(file: Path, half: str) -> Session:
    """Another graph in float64, with its weights rounded to `half` if one is named."""
    if not half:
        return all_runtimes()["reference"].prepare(bare(file, "fp32"), 1)
    import ml_dtypes
    import onnx
    from onnx import numpy_helper

    dtype = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}[half]
    model = onnx.load(file)
    for tensor in model.graph.initializer:
        if tensor.data_type == tensor.FLOAT:
            rounded = numpy_helper.to_array(tensor).astype(dtype).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
    return ReferenceSession(Float64Graph(model))
