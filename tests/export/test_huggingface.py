"""`hf:FOLDER`: the graph against the model that transformers itself loads from the folder, both in float64."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isorun.bench.proof import Proof
from isorun.bench.truth import distance
from isorun.export.artifact import ExportedModel
from isorun.export.exporter import ExportError, export
from isorun.export.huggingface import HubModule
from isorun.export.outputs import outputs64
from isorun.export.source import Source, SourceError, parse, read
from isorun.runtimes import all_runtimes
from isorun.runtimes.pytorch import TorchSession
from isorun.runtimes.reference import Float64Graph

from ..models.plain import left_padded
from ..models.theirs import Float64, counted
from .folders import MODELS, theirs, tokens, write

SAME = 1e-9
# Rounded constants: their code multiplies by numbers such as 1/√D that a float32 graph holds rounded, and `theirs` does
# in full.
ROUNDED = dict.fromkeys(("bloom", "gemma2", "gpt2", "roformer", "t5"), 1e-6)

Folder = Callable[[str], Path]
Exported = Callable[[str, str], ExportedModel]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    root = tmp_path_factory.mktemp("checkpoints")
    return cache(lambda name: write(name, root / name))


@pytest.fixture(scope="module")
def exported_folder(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    root = tmp_path_factory.mktemp("exported")
    return cache(lambda name, phase: export(parse(f"hf:{folder(name)}"), phase, root / f"{name}-{phase}"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt2", "bloom", "gemma2"])
def test_cached_decoding_is_their_pass_over_all_tokens(name: str, folder: Folder, exported_folder: Exported) -> None:
    """A prefill and a step on the graph, at batch 1, 2 and 3, rows padded on the left, to beyond two windows."""
    artifact = exported_folder(name, "step")
    graph, hf, limit = Float64Graph(artifact.model_path), theirs(name, folder(name)), ROUNDED.get(name, SAME)
    takes = {spec.name for spec in artifact.signature().inputs}
    for lengths, past in (([1], 0), ([7, 4], 0), ([13, 12, 2], 0), ([2], 1), ([14, 9], 13), ([12, 12, 7], 4)):
        mask = torch.from_numpy(left_padded(lengths))
        given = {"input_ids": tokens(tuple(mask.shape)), "attention_mask": mask, "position_ids": counted(mask)}
        given = {key: value for key, value in given.items() if key in takes}
        with torch.no_grad(), Float64():
            expected = hf(**given).logits[:, past:].numpy()
        found = _decoded(artifact, graph, {key: value.numpy() for key, value in given.items()}, past)
        real = mask[:, past:].numpy() > 0
        assert distance(found[real], expected[real]) <= limit, (lengths, past)


def _decoded(artifact: ExportedModel, graph: Float64Graph, given: dict[str, Any], past: int) -> Any:
    """Logits of the tokens after `past`, whose keys come from the graph itself."""
    sizes = {"batch": given["input_ids"].shape[0], "sequence": past, "past": 0}
    inputs = artifact.signature().inputs
    cache = {spec.name: np.zeros(spec.resolve(sizes)) for spec in inputs if spec.name.startswith("past")}
    if past:
        first = {key: value[:, :past] for key, value in given.items()}
        prefilled = graph.run({**first, **cache})
        cache = {key: prefilled[key.replace("past_key_values", "present")] for key in cache}
    later = {key: value if key == "attention_mask" else value[:, past:] for key, value in given.items()}
    return graph.run({**later, **cache})["logits"]


@pytest.mark.parametrize("name", ["bert", "roformer"])
def test_encoders_and_classifiers(name: str, folder: Folder, exported_folder: Exported) -> None:
    graph, hf = Float64Graph(exported_folder(name, "forward").model_path), theirs(name, folder(name))
    for lengths in ([1], [9, 5], [33, 20, 1]):
        mask = torch.from_numpy(left_padded(lengths)).flip(1)
        given = {"input_ids": tokens(tuple(mask.shape)), "attention_mask": mask, "token_type_ids": mask * 0 + 1}
        with torch.no_grad(), Float64():
            expected = hf(**given)
        found = graph.run({key: value.numpy() for key, value in given.items()})
        for key, value in found.items():
            real = mask.numpy() > 0 if value.ndim == 3 else slice(None)
            assert distance(value[real], expected[key].numpy()[real]) <= ROUNDED.get(name, SAME), (lengths, key)


def test_an_encoder_decoder_step_by_step(folder: Folder, exported_folder: Exported) -> None:
    """Cross-attention keys come once from `encode`; `step` continues a past, which may be empty."""
    encode, step = (exported_folder("t5", phase) for phase in ("encode", "step"))
    encoder, decoder, hf = Float64Graph(encode.model_path), Float64Graph(step.model_path), theirs("t5", folder("t5"))
    for lengths, target, past in (([1], 1, 0), ([9, 4], 6, 0), ([21, 20, 3], 11, 7)):
        mask = torch.from_numpy(left_padded(lengths)).flip(1)
        ids, wanted = tokens(tuple(mask.shape)), tokens((len(lengths), target), seed=2)
        with torch.no_grad(), Float64():
            expected = hf(input_ids=ids, attention_mask=mask, decoder_input_ids=wanted).logits[:, past:].numpy()
        states = encoder.run({"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
        ones = np.ones(wanted.shape, np.int64)
        fixed = {"encoder_attention_mask": mask.numpy()}
        fixed |= {key.replace("present", "past_key_values"): value for key, value in states.items() if "present" in key}
        cache = {f"past_key_values.0.decoder.{kind}": np.zeros((len(lengths), 6, 0, 8)) for kind in ("key", "value")}
        if past:
            first = {"input_ids": wanted[:, :past].numpy(), "decoder_attention_mask": ones[:, :past]}
            prefilled = decoder.run({**first, **fixed, **cache})
            cache = {key: prefilled[key.replace("past_key_values", "present")] for key in cache}
        later = {"input_ids": wanted[:, past:].numpy(), "decoder_attention_mask": ones}
        assert distance(decoder.run({**later, **fixed, **cache})["logits"], expected) <= ROUNDED["t5"], lengths


def test_names_and_axes_are_those_of_our_own_exports(exported_folder: Exported) -> None:
    step = exported_folder("llama", "step").signature()
    assert [(spec.name, spec.shape) for spec in step.inputs[:4]] == [
        ("input_ids", ("batch", "sequence")),
        ("attention_mask", ("batch", "past + sequence")),
        ("position_ids", ("batch", "sequence")),
        ("past_key_values.0.key", ("batch", 2, "past", 8)),
    ]
    assert step.outputs[1].shape == ("batch", 2, "past + sequence", 8)
    encode = exported_folder("t5", "encode").signature()
    assert [spec.name for spec in encode.outputs] == [
        "last_hidden_state", "present.0.encoder.key", "present.0.encoder.value",
    ]  # fmt: skip
    assert exported_folder("gpt2", "step").limits["position_ids"] == 64
    assert "position_ids" not in exported_folder("llama", "step").limits


def test_attention_is_one_operator_and_keys_are_not_repeated(exported_folder: Exported) -> None:
    ops = exported_folder("llama", "step").ops
    assert (ops["Attention"], ops["RMSNormalization"], ops["RotaryEmbedding"]) == (2, 5, 4)


@pytest.mark.parametrize("name", ["llama", "bert", "llama classifier"])
def test_onnx_runtime_takes_every_batch_and_a_row_of_padding(name: str, exported_folder: Exported) -> None:
    artifact = exported_folder(name, "step" if name == "llama" else "forward")
    session, module = all_runtimes()["ort-cpu"].prepare(artifact, 1), artifact.module()
    for batch in (1, 2, 3):
        feeds = artifact.signature().feeds({"batch": batch, "sequence": 6, "past": 3}, padding="left")
        feeds["attention_mask"][-1] = batch % 2  # all of it, at batch 2
        found = session.fetch(session.run(session.stage(feeds)))
        for key, truth in outputs64(module, feeds).items():
            assert distance(found[key], truth) < 1e-4, (batch, key)
    session.close()


def test_big_bird_is_refused_with_the_line_that_turns_to_full_attention(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"another function.*sequence <= 22 \(.*modeling_big_bird\.py:\d+ in forward"):
        export(parse(f"hf:{folder('big_bird')}"), "forward", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_dynamic_ntk_is_refused_with_the_line_that_looks_at_positions(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"depends on values.*modeling_rope_utils\.py:\d+ in .*if seq_len >"):
        export(parse(f"hf:{folder('dynamic_ntk')}"), "step", tmp_path / "out")


def test_a_call_leaves_the_model_as_it_was(folder: Folder) -> None:
    """BigBird in transformers: after a short input it attends fully at every length."""
    module = parse(f"hf:{folder('big_bird')}").module("forward")
    feeds = module.signature.feeds({"batch": 1, "sequence": 40})
    first = outputs64(module, feeds)
    outputs64(module, module.signature.feeds({"batch": 1, "sequence": 3}))
    assert distance(outputs64(module, feeds)["last_hidden_state"], first["last_hidden_state"]) == 0


def test_a_session_pays_for_that_once_for_each_length_and_not_in_each_call(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = parse(f"hf:{folder('big_bird')}").module("forward")
    session = TorchSession(module, "cpu", "fp32", 1)
    guarded: list[int] = []
    guard = HubModule._guarded
    monkeypatch.setattr(HubModule, "_guarded", lambda self: guarded.append(1) or guard(self))

    def states(length: int) -> Any:
        staged = session.stage(module.signature.feeds({"batch": 1, "sequence": length}))
        first, again = (session.fetch(session.run(staged))["last_hidden_state"] for _ in range(2))
        np.testing.assert_array_equal(first, again)
        return first

    sparse = states(40)
    states(3)
    np.testing.assert_array_equal(states(40), sparse)
    assert len(guarded) == 3
    session.close()


def _change(folder: Path, **fields: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "an unknown family": (lambda f: _change(f, model_type="nonsense"), "nonsense"),
    "an unknown class": (
        lambda f: _change(f, architectures=["Trainer"]),
        "'Trainer', which transformers does not have",
    ),
    "other shapes": (lambda f: _change(f, intermediate_size=52), "(?i)mismatch"),
    "more layers": (lambda f: _change(f, num_hidden_layers=2), "missing keys"),
    "no configuration": (lambda f: (f / "config.json").unlink(), "no config.json"),
    "a broken configuration": (lambda f: (f / "config.json").write_text("{"), "config.json"),
    "a broken file": (lambda f: (f / "model.safetensors").write_bytes(b"short"), "SafetensorError|Header|header"),
    "a pickle alone": (
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        "pytorch_model.bin is a pickle, which can run any code",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_folders_that_are_refused(case: str, tmp_path: Path) -> None:
    spoil, reason = REFUSED[case]
    spoil(write("bert", tmp_path / "bert"))
    with pytest.raises(SourceError, match=reason):
        parse(f"hf:{tmp_path / 'bert'}").module("forward")


def test_a_phase_that_a_model_lacks(folder: Folder) -> None:
    with pytest.raises(SourceError, match="BertModel has no phase 'step'; it has forward"):
        parse(f"hf:{folder('bert')}").module("step")


def test_code_of_the_folder_is_never_run(tmp_path: Path) -> None:
    folder = write("bert", tmp_path / "bert")
    _change(folder, model_type="own", auto_map={"AutoConfig": "evil.Config", "AutoModel": "evil.Model"})
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(SourceError):
        parse(f"hf:{folder}").module("forward")
    assert not (tmp_path / "ran").exists()


def test_without_transformers_the_extra_is_named(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SourceError, match=r"pip install 'isorun\[hf\]'"):
        parse(f"hf:{folder('bert')}").module("forward")


def test_what_a_user_types(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bert = str(folder("bert"))
    (tmp_path / "m.onnx").touch()
    monkeypatch.chdir(tmp_path)
    assert parse("gpt2") == Source("preset", "gpt2", "small")
    assert read("gpt2@full", "tiny", 3) == Source("preset", "gpt2", "full", 3)
    assert parse(f"hf:{bert}") == Source("hf", bert)
    assert parse(bert) == Source("checkpoint", bert)
    assert parse("package.module:make") == Source("module", "package.module:make")
    assert parse("m.onnx") == Source("file", str(tmp_path / "m.onnx"))
    for text, reason in (("gtp2", "did you mean gpt2"), ("hf:nowhere", "no such folder"), ("x.onnx", "no such file")):
        with pytest.raises(SourceError, match=reason):
            parse(text)
    assert set(MODELS) >= {"llama", "bert"}


@pytest.mark.parametrize(
    ("name", "phase", "fused"),
    [("llama", "step", "causal"), ("gpt2", "forward", "causal"), ("bert", "forward", "bidirectional")],
)
def test_their_attention_is_fused_and_stays_what_it_was(
    tmp_path: Path, folder: Folder, exported_folder: Exported, name: str, phase: str, fused: str
) -> None:
    """Under their masks a padded token may see everything: padding on any side, and in a hole."""
    artifact = export(parse(f"hf:{folder(name)}"), phase, tmp_path / "out", target="ort-cpu", prove=Proof)
    notes = {note.split(":")[0]: note for note in artifact.notes}
    assert "applied to" in notes[fused]
    assert notes[fused].endswith("the same function in float64")
    assert artifact.ops.get("Attention", 0) == 0
    assert len(artifact.aliases) == (4 if phase == "step" else 0)
    before, after = (Float64Graph(one.model_path) for one in (exported_folder(name, phase), artifact))
    for length, past in ((9, 0), (1, 6), (4, 6)):
        feeds = artifact.signature().feeds({"batch": 3, "sequence": length, "past": past})
        feeds["attention_mask"][1, :2] = 0
        feeds["attention_mask"][2, -2:-1] = 0
        truth = before.run(feeds)
        for output, array in after.run(feeds).items():
            assert distance(array, truth[output]) < SAME, (output, length, past)
