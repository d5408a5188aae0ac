"""Which matrices keep a higher precision: the choice itself, and the exports whose drift it bounds."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from isorun import cli
from isorun.export.adoption import adopt_file
from isorun.export.artifact import ExportedModel
from isorun.export.exporter import export
from isorun.export.finish import EXAMPLE, Original, derive, finish
from isorun.export.precision import Quantisation, error
from isorun.export.precision.choice import choose
from isorun.export.source import Source
from isorun.export.storage import save
from isorun.export.trace import ExportError

from ...conftest import Exported
from .graphs import FLOAT, graph, node

COSTS = {"a": 1.0, "b": 8.0, "c": 2.0, "d": 4.0}
LAYERS = {name: f"model.{name}" for name in COSTS}
BITS = {"int4": 1.0, "int8-weights": 0.1, "int8": 1.0, "fp32": 0.0}


class Measured:
    """Errors of layers that add up as squares, over a floor that nothing is below; counts what was asked."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.asked = 0

    def __call__(self, kept: Mapping[str, str]) -> float:
        self.asked += 1
        errors = [cost * BITS[kept.get(name, self.dtype)] for name, cost in COSTS.items()]
        return float(np.sqrt(0.01**2 + np.square(errors).sum()))


@pytest.mark.parametrize(
    ("limit", "kept"), [(10.0, ""), (5.0, "b"), (2.3, "bd"), (2.2, "bdc"), (1.1, "bdc"), (0.5, "bdca"), (0.01, "bdca")]
)
def test_the_most_costly_layers_are_kept_and_no_more_than_needed(limit: float, kept: str) -> None:
    measured = Measured("int8")
    choice = choose(LAYERS, "int8", limit, measured)
    assert choice.kept == dict.fromkeys(kept, "fp32")
    assert measured(choice.kept) <= limit
    if kept:
        assert measured(dict.fromkeys(kept[:-1], "fp32")) > limit
        assert choice.alone == pytest.approx({name: float(np.hypot(0.01, cost)) for name, cost in COSTS.items()})


def test_four_bits_become_eight_before_they_become_float32() -> None:
    assert choose(LAYERS, "int4", 5.0, Measured("int4")).kept == {"b": "int8-weights"}
    assert choose(LAYERS, "int4", 0.95, Measured("int4")).kept == dict.fromkeys("bdca", "int8-weights")
    up = choose(LAYERS, "int4", 0.5, Measured("int4")).kept
    assert up == {"b": "fp32", "d": "int8-weights", "c": "int8-weights", "a": "int8-weights"}


def test_few_graphs_are_measured() -> None:
    measured = Measured("int4")
    choose(LAYERS, "int4", 0.5, measured)
    assert measured.asked <= 2 + len(COSTS) + 3  # both ends, each alone, and 8 steps bisected


@pytest.mark.parametrize(
    ("limit", "rule"), [(0.001, ""), (0, "a limit lies above 0, and "), (-1, "a limit lies above 0, and ")]
)
def test_what_cannot_be_reached_is_refused_with_what_can(limit: float, rule: str) -> None:
    says = f"max drift {limit:g}: {rule}the least that can be had is 0.01, with nothing quantised"
    with pytest.raises(ValueError, match=re.escape(says)):
        choose(LAYERS, "int8", limit, Measured("int8"))


def four_bits(columns: np.ndarray) -> np.ndarray:
    """One block a column, as ONNX Runtime's quantiser rounds it: the largest magnitude becomes -8 exactly."""
    scale = columns[np.abs(columns).argmax(axis=0), np.arange(columns.shape[1])] / -8
    return np.clip(np.rint(columns / scale), -8, 7) * scale


def test_a_graph_keeps_the_layer_that_numpy_says(tmp_path: Path) -> None:
    """One matrix of whole numbers, which four bits hold exactly, and one that is rounded."""
    rng = np.random.default_rng(0)
    rough = rng.standard_normal((32, 32)).astype(np.float32)
    whole = rng.integers(-7, 8, (32, 32)).astype(np.float32)
    whole[0] = -8
    model = graph(
        [node("MatMul", ["x", "whole"], "a"), node("MatMul", ["a", "rough"], "y")],
        {"x": (FLOAT, ("n", 32))}, {"y": (FLOAT, ("n", 32))}, {"whole": whole, "rough": rough},
    )  # fmt: skip
    save(model, tmp_path / "model.onnx")
    single = adopt_file(tmp_path / "model.onnx", tmp_path / "single")
    made = derive(single, "int4", tmp_path / "int4", options=Quantisation(accuracy_level=0, max_drift=0.02))
    x = single.signature().feeds({"n": EXAMPLE})["x"].astype(np.float64)
    y = x @ whole @ rough.astype(np.float64)
    expected = np.linalg.norm(x @ whole @ four_bits(rough.astype(np.float64)) - y) / np.linalg.norm(y)
    assert expected > 0.02
    assert {name: entry["dtype"] for name, entry in made.kept.items()} == {"rough": "int8-weights"}
    assert made.kept["rough"]["alone"] == pytest.approx(expected, rel=1e-4)
    assert made.drift["before"] == pytest.approx(expected, rel=1e-4)
    assert made.drift["after"] == made.errors["y"] <= made.drift["limit"] == 0.02
    assert made.ops["MatMulNBits"] == 2


@pytest.mark.parametrize(("dtype", "limit"), [("int8", 0.01), ("int8-weights", 0.01), ("int4", 0.03)])
def test_an_export_is_within_its_limit_and_names_layers(
    exported: Exported, tmp_path: Path, dtype: str, limit: float
) -> None:
    single = exported("gpt2", "step")
    made = derive(single, dtype, tmp_path / dtype, options=Quantisation(max_drift=limit))
    assert made.drift["before"] > limit >= made.drift["after"] == max(made.errors.values())
    assert len(made.kept) > 0
    assert all(entry["layer"].startswith("model.") for entry in made.kept.values())
    assert f"max drift {limit:g}: of 13 matrices" in made.notes[-1]
    assert ExportedModel.open(made.folder) == made
    floats = sum(entry["dtype"] == "fp32" for entry in made.kept.values())
    assert made.ops.get("MatMul", 0) == floats < 13


def test_a_limit_that_all_are_within_changes_nothing(exported: Exported, tmp_path: Path) -> None:
    single = exported("gpt2", "step")
    plain = derive(single, "int4", tmp_path / "plain")
    bounded = derive(single, "int4", tmp_path / "bounded", options=Quantisation(max_drift=1.0))
    assert bounded.files == plain.files
    assert bounded.kept == {}


def test_a_source_keeps_its_weights_while_it_is_measured(tmp_path: Path) -> None:
    """Truth is the module in float64, and the graph holds the module's own weights until it is written."""
    source = Source("preset", "gpt2", "tiny")
    made = export(source, "forward", tmp_path / "out", dtype="int8", options=Quantisation(max_drift=0.01))
    assert made.drift["after"] == made.errors["logits"] <= 0.01
    assert {path.name for path in made.folder.iterdir()} == {"model.onnx", "artifact.json"}


def test_what_is_not_measured_is_not_chosen(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Quantisation(max_drift=0.1)
    streamed = Original(bytes=1, why="the weights were streamed")
    model = ir.load(exported("gpt2", "step").model_path)
    with pytest.raises(ValueError, match=r"max drift 0\.1: cannot be measured: the weights were streamed"):
        finish(model, streamed, tmp_path, dtype="int4", options=options)
    monkeypatch.setattr(error, "SHARE", 0.0)
    with pytest.raises(ExportError, match=r"gpt2: max drift 0\.1: error not measured: it needs"):
        derive(exported("gpt2", "step"), "int4", tmp_path / "out", options=options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--dtype", "fp16", "--max-drift", "0.1"],
            "max drift 0.1: is for int8, int8-weights, int4, and dtype is 'fp16'",
        ),
        (["--max-drift", "0.1"], "and dtype is 'fp32'"),
        (["--dtype", "int8", "--max-drift", "nan"], "max drift nan: is not a finite number"),
        (["--dtype", "int8", "--max-drift", "1e-9"], "max drift 1e-09: the least that can be had is"),
    ],
)
def test_the_command_refuses_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], says: str
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["isorun", "export", "lstm", "--size", "tiny", "-o", str(out), *arguments])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
