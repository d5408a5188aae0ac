"""Streamed exports: weights that were never there together are those of the ordinary export, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file

from isorun.export import exporter, streaming
from isorun.export.exporter import ExportError, export
from isorun.export.finish import derive
from isorun.export.source import Source
from isorun.models.checkpoints import load, stored
from isorun.models.deferred import seeded
from isorun.models.presets import PRESETS
from isorun.models.transformer import build

from ..conftest import Exported


def run(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(str(path))
    return session.run(None, feeds)  # type: ignore[no-any-return]


# One preset for each kind of module with weights of its own: tied embeddings, experts, recurrences, biases of scores.
@pytest.mark.parametrize("name", ["gpt2", "mixtral-8x7b", "lstm", "transformer-xl", "t5-small", "longformer-base"])
def test_weights_on_demand_are_those_of_the_seed(name: str) -> None:
    config = PRESETS[name].at("tiny")
    model, draw = seeded(config, seed=5)
    assert all(parameter.is_meta for parameter in model.parameters())
    whole = build(config, seed=5)
    wanted = list(whole.named_parameters(remove_duplicate=False))
    for key, value in (*wanted, *reversed(wanted)):  # in order, and against it
        assert torch.equal(draw(key), value), key
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), whole.buffers(), strict=True))


def test_a_streamed_export_is_the_ordinary_one(exported: Exported, tmp_path: Path) -> None:
    ordinary = exported("llama3-8b", "step")
    streamed = export(Source("preset", "llama3-8b", "tiny"), "step", tmp_path / "streamed", stream=True)
    assert (tmp_path / "streamed" / "model.onnx.data").is_file(), "weights are written beside the graph"
    assert streamed.ops == ordinary.ops
    assert streamed.signature() == ordinary.signature()
    feeds = ordinary.signature().feeds({"batch": 2, "sequence": 3, "past": 4})
    for a, b in zip(run(streamed.model_path, feeds), run(ordinary.model_path, feeds), strict=True):
        assert np.array_equal(a, b)
    assert streamed.errors == {}
    assert "the weights were streamed" in streamed.notes[-1]


def test_a_tied_and_quantised_one_as_well(exported: Exported, tmp_path: Path) -> None:
    ordinary = derive(exported("gpt2", "step"), "int4", tmp_path / "ordinary")
    streamed = export(Source("preset", "gpt2", "tiny"), "step", tmp_path / "streamed", dtype="int4", stream=True)
    feeds = ordinary.signature().feeds({"batch": 2, "sequence": 3, "past": 4})
    for a, b in zip(run(streamed.model_path, feeds), run(ordinary.model_path, feeds), strict=True):
        assert np.array_equal(a, b)


def test_a_checkpoint_is_read_weight_by_weight(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64, "hidden_act": "silu", "rope_theta": 10000.0,
    }  # fmt: skip
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    save_file({name: tensor.contiguous() for name, tensor in theirs.state_dict().items()}, tmp_path / "m.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    _, model, read = stored(tmp_path)
    _, whole = load(tmp_path)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert all(torch.equal(read(name), value) for name, value in whole.named_parameters(remove_duplicate=False))
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), whole.buffers(), strict=True))


def test_what_would_not_fit_is_streamed_and_what_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "PEAK", 1e12)
    streamed = export(Source("preset", "mini-gpt", "tiny"), "forward", tmp_path / "streamed")
    assert "the weights were streamed" in streamed.notes[-1]
    with pytest.raises(ExportError, match="can be streamed from preset or checkpoint sources alone"):
        export(Source("module", "isorun.models.yardstick:matmul"), "forward", tmp_path / "module", stream=True)
    monkeypatch.setattr(streaming, "REST", 2**60)
    with pytest.raises(ExportError, match=r"mini-gpt at tiny: needs \d+ GiB to export even with streamed weights"):
        export(Source("preset", "mini-gpt", "tiny"), "forward", tmp_path / "large")
