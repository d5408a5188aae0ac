"""ONNX Runtime: cached decoding gives what one pass gives, an empty past runs, and a wrong provider is a failure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from isorun.bench.records import PARITY_LIMIT
from isorun.export.artifact import bare
from isorun.export.distance import rms
from isorun.export.outputs import outputs, outputs64
from isorun.models.signature import Array
from isorun.runtimes import all_runtimes
from isorun.runtimes.base import RuntimeFailure
from isorun.runtimes.ort import OnnxRuntime

from ..conftest import Exported

DECODERS = ("transformer-base", "gpt2", "llama3-8b", "mistral-7b", "lstm")
TOKENS, FIRST = 21, 8  # mistral-7b's window is 16 at tiny


def _present_as_past(results: dict[str, Array]) -> dict[str, Array]:
    return {name.replace("present.", "past_key_values."): array for name, array in results.items() if name != "logits"}


def _cut(name: str, array: Array, start: int, stop: int) -> Array:
    """The new tokens from start to stop; the mask of the decoder covers the past too."""
    if name.startswith(("past_key_values", "encoder_")):
        return array
    return array[:, :stop] if name.endswith("attention_mask") else array[:, start:stop]


@pytest.mark.parametrize("name", DECODERS)
def test_prefill_and_cached_steps_are_one_pass(exported: Exported, name: str) -> None:
    artifact = exported(name, "step")
    feeds = artifact.signature().feeds({"batch": 3, "sequence": TOKENS, "past": 0, "source": 9}, padding="left")
    session = all_runtimes()["ort-cpu"].prepare(artifact, threads=1)

    def run(inputs: dict[str, Array]) -> dict[str, Array]:
        return session.fetch(session.run(session.stage(inputs)))

    whole = run(feeds)["logits"]
    results = run({key: _cut(key, array, 0, FIRST) for key, array in feeds.items()})
    steps = [results["logits"]]
    for at in range(FIRST, TOKENS):
        new = {key: _cut(key, array, at, at + 1) for key, array in feeds.items()}
        results = run(new | _present_as_past(results))
        steps.append(results["logits"])
    single, truth = outputs(artifact.module(), feeds)["logits"], outputs64(artifact.module(), feeds)["logits"]
    ruler = rms(single - truth)
    assert rms(whole - truth) <= PARITY_LIMIT * ruler
    assert rms(np.concatenate(steps, axis=1) - truth) <= PARITY_LIMIT * ruler


def test_a_provider_that_is_not_there_is_a_failure_not_a_slower_success(exported: Exported) -> None:
    runtime = OnnxRuntime("ort-cuda", "CUDAExecutionProvider", "cuda")
    assert "CUDAExecutionProvider" in str(runtime.missing())
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"), pytest.raises(RuntimeFailure, match="and got CPU"):
        runtime.prepare(exported("lstm", "forward"), threads=1)


@pytest.mark.parametrize("name", ["ort-cpu", "openvino"])
def test_a_scalar_is_given_as_one(tmp_path: Path, name: str) -> None:
    """A condition, as merged decoders take it: a vector of one element is another thing."""
    if all_runtimes()[name].missing():
        pytest.skip(f"{name} is not installed")
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.parser.parse_model(
            """<ir_version: 9, opset_import: ["" : 18]>
            g (float[n] x, bool use_cache_branch) => (float[n] y) {
                y = If (use_cache_branch) <
                    then_branch = a () => (float[n] u) { u = Neg (x) },
                    else_branch = b () => (float[n] v) { v = Abs (x) }
                >
            }"""
        ),
        path,
    )
    session = all_runtimes()[name].prepare(bare(path, "fp32"), 1)
    x = np.array([1, -2, 3], np.float32)
    for choice, want in ((True, -x), (False, np.abs(x))):
        found = session.fetch(session.run(session.stage({"x": x, "use_cache_branch": np.array(choice)})))
        np.testing.assert_array_equal(found["y"], want)
    session.close()
