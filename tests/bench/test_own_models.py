"""Models that suites know only by their own code: their phases, their decode steps, and what they cannot be asked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from isorun.bench import truth
from isorun.bench.exported import facts
from isorun.bench.graph_cost import GraphCost
from isorun.bench.records import PARITY_LIMIT
from isorun.bench.runfolder import read_run
from isorun.bench.runner import Runner
from isorun.bench.subject import Subject
from isorun.bench.suite import Group, Point, SuiteError, groups, load, sizes
from isorun.export.artifact import ExportedModel
from isorun.export.exporter import export
from isorun.export.source import parse
from isorun.models.signature import Signature, TensorSpec

from ..export.folders import write
from .fake_worker import FakeWorker

STEPPER = """
import torch
from torch import nn
from isorun.models.signature import Signature, TensorSpec

class Stepper(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(20, 8)

    def forward(self, input_ids, keys):
        keys = torch.cat([keys, self.table(input_ids)], 1)
        return self.table(input_ids) @ keys.transpose(1, 2), keys

def stepper():
    past, total = ("batch", "past", 8), ("batch", "past + sequence", 8)
    ids, scores = ("batch", "sequence"), ("batch", "sequence", "past + sequence")
    inputs = TensorSpec("input_ids", "int64", ids, 20), TensorSpec("keys", "float32", past)
    outputs = TensorSpec("scores", "float32", scores), TensorSpec("present", "float32", total)
    return Stepper(), Signature(inputs, outputs)

def plain():
    return nn.Linear(16, 4), (torch.zeros(3, 5, 16),)

def broken():
    raise ValueError("no weights")
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    for name in ("llama", "gpt2", "bert", "t5"):
        write(name, root / name)
    return root


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_steppers.py").write_text(STEPPER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_steppers", raising=False)


def _phases(*models: str) -> list[tuple[str, str]]:
    return [(group.model, group.phase) for group in groups(load("quick", models=models, seq="8", past="4"))]


def test_decoders_of_a_folder_have_steps_and_encoders_have_none(folders: Path) -> None:
    found = _phases(*(f"hf:{folders / name}" for name in ("llama", "gpt2", "bert", "t5")))
    both = [("llama", "forward"), ("llama", "step"), ("gpt2", "forward"), ("gpt2", "step")]
    assert found == [*both, ("bert", "forward"), ("t5", "forward"), ("t5", "step")]


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "t5"])
def test_phases_told_without_weights_are_those_of_the_model(folders: Path, name: str) -> None:
    source = parse(f"hf:{folders / name}")
    for phase in source.phases():
        assert source.module(phase).signature.inputs


@pytest.mark.usefixtures("factories")
def test_a_factory_has_steps_where_its_inputs_have_a_past() -> None:
    assert _phases("own_steppers:stepper", "own_steppers:plain") == [
        ("own_steppers:stepper", "forward"),
        ("own_steppers:stepper", "step"),
        ("own_steppers:plain", "forward"),
    ]


@pytest.mark.usefixtures("factories")
def test_code_that_cannot_tell_its_phases_is_refused() -> None:
    with pytest.raises(SuiteError, match="own_steppers:broken: the factory raised ValueError: no weights"):
        _phases("own_steppers:broken")


@pytest.mark.parametrize("name", ["gpt2", "t5"])
@pytest.mark.parametrize("runtime", ["torch", "ort-cpu"])
def test_a_step_of_a_folder_is_measured_as_that_of_a_preset(
    folders: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, name: str, runtime: str
) -> None:
    """Truth from the source in float64, parity on the timed session, and operations of the graph that grow by rows."""
    artifact = _step(folders, tmp_path_factory, name)
    group = Group(artifact.source, None, "step", "fp32", (Point(1, 6), Point(3, 6)))
    shape = sizes(group.case(Point(3, 6), runtime))
    truth.write(str(artifact.folder), shape, str(tmp_path / "truth.npz"))
    subject = Subject(str(artifact.folder), runtime, threads=1)
    errors = subject.stage(shape, str(tmp_path / "truth.npz"))["errors"]
    assert [error["name"] for error in errors] == [spec.name for spec in artifact.signature().outputs]
    assert all(0 <= error["rms"] <= PARITY_LIMIT * error["ruler_rms"] for error in errors)
    assert subject.facts()["memory"]["cache"] > 0
    cost = GraphCost(artifact.model_path)
    one, three = (cost.at(sizes(group.case(point, ""))).flops for point in group.points)
    assert three == 3 * one > 0


_STEPS: dict[str, ExportedModel] = {}


def _step(folders: Path, tmp_path_factory: pytest.TempPathFactory, name: str) -> ExportedModel:
    if name not in _STEPS:
        _STEPS[name] = export(parse(f"hf:{folders / name}"), "step", tmp_path_factory.mktemp(name) / "step")
    return _STEPS[name]


def test_the_end_of_a_table_and_the_axes_are_remembered(
    folders: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    artifact = _step(folders, tmp_path_factory, "gpt2")
    told = facts(Group(artifact.source, None, "step", "fp32", (Point(1, 6),)), artifact.folder)
    assert told is not None
    assert told["max_tokens"] == 64
    assert told["axes"] == ["batch", "past", "sequence"]


@pytest.mark.usefixtures("workers")
def test_a_length_beyond_the_table_of_a_folder_is_skipped_with_the_limit(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeWorker, "positions", 64)
    suite = load("quick", models=[f"hf:{folders / 'gpt2'}"], seq="64,65", past="63,64")
    for _ in Runner(suite, tmp_path / "run").run():
        pass
    found = {(m.case.phase, m.case.length): (m.status, m.reason) for m in read_run(tmp_path / "run").measurements}
    beyond = ("skipped", "65 tokens exceed the table of 64 positions of gpt2")
    assert found == {
        ("forward", 64): ("ok", None), ("forward", 65): beyond, ("step", 63): ("ok", None), ("step", 64): beyond
    }  # fmt: skip


def _free(*shapes: tuple[int | str, ...]) -> Signature:
    return Signature(
        tuple(TensorSpec(f"x{i}", "float32", shape) for i, shape in enumerate(shapes)),
        (TensorSpec("y", "float32", ("batch", "sequence", 1000)), TensorSpec("z", "float32", ("found",))),
    )


SIZES = {"batch": 8, "sequence": 32, "past": 0, "source": 32}


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        (
            _free(("batch", "memory")),
            "the graph has a free axis 'memory', and the sizes of a suite are batch",
        ),
        (_free((1, "sequence")), "batch 8: the graph has no free axis of that name"),
        (_free(("batch", 16)), "sequence 32: the graph has no free axis of that name"),
    ],
)
def test_sizes_that_a_graph_does_not_have_are_named(signature: Signature, message: str) -> None:
    assert str(truth.impossible(signature, SIZES, 1 << 40)).startswith(message)


def test_sizes_that_are_fixed_in_the_graph_are_possible() -> None:
    assert truth.impossible(_free((8, 32)), SIZES, 1 << 40) is None


def test_what_cannot_be_held_is_known_before_memory_is_taken() -> None:
    signature, needed = _free(("batch", "sequence")), 8 * 32 * 4 + 8 * 32 * 1000 * 8
    assert truth.impossible(signature, SIZES, needed) is None
    assert "inputs and outputs alone take" in str(truth.impossible(signature, SIZES, needed - 1))
    absurd = {**SIZES, "batch": 10**30}
    assert "GiB are free" in str(truth.impossible(signature, absurd, 1 << 40))
