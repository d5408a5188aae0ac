"""A cache that is extended in place, on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from isorun.export import passes
from isorun.export.artifact import ExportedModel
from isorun.models.signature import Array
from isorun.runtimes import all_runtimes

from .conftest import Exported, Fast

CAPACITY = 24


@pytest.fixture(scope="module")
def artifact(exported: Exported, fast: Fast, tmp_path_factory: pytest.TempPathFactory) -> ExportedModel:
    """Llama's decode step, written out."""
    folder = tmp_path_factory.mktemp("fast")
    model, _ = fast("llama3-8b", "step")
    ir.save(model, folder / "model.onnx")
    return replace(exported("llama3-8b", "step"), folder=folder, aliases=passes.aliases(model))


def test_a_shared_cache_gives_the_outputs_of_a_separate_one(artifact: ExportedModel) -> None:
    feeds = artifact.signature().feeds({"batch": 3, "sequence": 2, "past": 5}, padding="left")
    runtime = all_runtimes()["ort-cpu"]
    apart, shared = (runtime.prepare(one, 1) for one in (replace(artifact, aliases={}), artifact))
    wanted = apart.fetch(apart.run(apart.stage(feeds)))
    staged = shared.stage(feeds)
    shared.run(staged)
    found = shared.fetch(shared.run(staged))  # a second step from the same past writes the same
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("padding", ["none", "left"])
def test_generation_in_buffers_longer_than_the_sequence(artifact: ExportedModel, padding: str) -> None:
    """A prompt of 5 tokens and 4 steps, in buffers of 24; the same from an empty past in one pass."""
    feeds = artifact.signature().feeds({"batch": 3, "sequence": 9, "past": 0}, padding=padding)  # type: ignore[arg-type]
    session = onnxruntime.InferenceSession(artifact.model_path)
    whole = session.run(["logits"], feeds)[0]
    found = np.concatenate(list(_generated(session, artifact, feeds)), axis=1)
    np.testing.assert_allclose(found, whole, rtol=0, atol=2e-5)


def _generated(
    session: onnxruntime.InferenceSession, artifact: ExportedModel, feeds: dict[str, Array]
) -> Iterator[Array]:
    """The logits of each call, with one buffer for a past and its present."""
    binding = session.io_binding()
    for present, past in artifact.aliases.items():
        batch, heads, _, width = feeds[past].shape
        buffer = np.full((batch, heads, CAPACITY, width), 9.0, np.float32)  # what is not written must not be seen
        shared = onnxruntime.OrtValue.ortvalue_from_numpy(buffer)
        binding.bind_ortvalue_input(past, shared)
        binding.bind_ortvalue_output(present, shared)
    for start, stop in ((0, 5), (5, 6), (6, 7), (7, 8), (8, 9)):
        binding.bind_cpu_input("input_ids", np.ascontiguousarray(feeds["input_ids"][:, start:stop]))
        binding.bind_cpu_input("position_ids", np.ascontiguousarray(feeds["position_ids"][:, start:stop]))
        binding.bind_cpu_input("attention_mask", np.ascontiguousarray(feeds["attention_mask"][:, :stop]))
        binding.bind_output("logits")
        session.run_with_iobinding(binding)
        yield binding.get_outputs()[-1].numpy()
