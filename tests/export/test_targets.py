"""`--for` when something is in the way: the export goes on with the graph that it had, and says why."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from isorun import cli
from isorun.export import passes
from isorun.export.artifact import ExportedModel
from isorun.export.passes import Prove
from isorun.models.signature import Signature
from isorun.runtimes.reference import Float64Graph

from ..conftest import Exported


def export(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The command, without the cache; its exit status."""
    monkeypatch.setattr(sys, "argv", ["isorun", "export", "--no-cache", "--size", "tiny", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def refuses_kernels(_: Signature) -> Prove:
    """A proof that no graph with the kernel passes."""

    def prove(_: object, after: object) -> str | None:
        kinds = {node.op_type for node in after.graph.all_nodes()}  # type: ignore[attr-defined]
        return "logits differs by 1.0e-03 of its scale at batch 1" if "GroupQueryAttention" in kinds else None

    return prove


def test_a_proof_that_fails_is_reported_and_the_export_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, exported: Exported
) -> None:
    monkeypatch.setattr("isorun.commands.export._prover", lambda weight_bytes: refuses_kernels)
    assert export(monkeypatch, "gpt2", "--phase", "step", "--for", "ort-cpu", "-o", str(tmp_path / "out")) == 0
    assert "causal: rolled back: logits differs by 1.0e-03 of its scale at batch 1" in capsys.readouterr().out
    made, portable = ExportedModel.open(tmp_path / "out"), exported("gpt2", "step")
    assert made.ops == portable.ops
    assert made.aliases == {}
    feeds = made.signature().feeds({"batch": 2, "sequence": 3, "past": 4})
    truth = Float64Graph(portable.model_path).run(feeds)
    assert all((array == truth[name]).all() for name, array in Float64Graph(made.model_path).run(feeds).items())


def test_a_runtime_without_the_kernels_gets_the_portable_graph_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, exported: Exported
) -> None:
    monkeypatch.setattr(passes, "version", lambda wheel: "1.31.0")
    assert export(monkeypatch, "gpt2", "--phase", "step", "--for", "ort-cpu", "-o", str(tmp_path / "out")) == 0
    assert "the portable graph: its kernels need ONNX Runtime 1.32, here is 1.31.0" in capsys.readouterr().out
    assert ExportedModel.open(tmp_path / "out").files == exported("gpt2", "step").files


@pytest.mark.parametrize(
    ("model", "reasons"),
    [
        ("lstm", ["causal: not applied: the graph has no Attention operator"]),
        ("mistral-7b", ["causal: not applied: no mask of 2 Attention is causal over real keys"]),
    ],
)
def test_a_condition_that_holds_nowhere_is_a_reason(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    model: str,
    reasons: list[str],
) -> None:
    assert export(monkeypatch, model, "--for", "ort-cpu", "-o", str(tmp_path / "out")) == 0
    said = capsys.readouterr().out
    assert all(reason in said for reason in reasons)
    assert not any("GroupQuery" in op for op in ExportedModel.open(tmp_path / "out").ops)


def test_a_graph_that_is_there_already_takes_no_option_of_a_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, exported: Exported
) -> None:
    file = exported("gpt2", "forward").model_path
    assert export(monkeypatch, str(file), "--last-logits", "-o", str(tmp_path / "out")) == 2
    assert f"{file}: is a graph already: --last-logits is for models that are traced" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_graph_that_is_there_already_is_fused_and_shares_its_cache(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, exported: Exported
) -> None:
    ours = exported("llama3-8b", "step")
    assert export(monkeypatch, str(ours.model_path), "--for", "ort-cpu", "-o", str(tmp_path / "out")) == 0
    assert "causal: applied to 2 of 2 Attention, the same function in float64" in capsys.readouterr().out
    made = ExportedModel.open(tmp_path / "out")
    assert (made.target, made.opset, made.source.kind) == ("ort-cpu", 23, "file")
    assert made.session == {"disabled_optimizers": "SkipLayerNormFusion"}
    assert made.aliases["present.1.value"] == "past_key_values.1.value"
    feeds = ours.signature().feeds({"batch": 2, "sequence": 3, "past": 4}, padding="left")
    truth = Float64Graph(ours.model_path).run(feeds)
    for name, array in Float64Graph(made.model_path).run(feeds).items():
        np.testing.assert_allclose(array, truth[name], rtol=0, atol=1e-12, err_msg=name)


def test_a_lower_opset_is_raised_and_the_manifest_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ("transformer-base", "--opset", "20", "--for", "ort-cpu", "-o", str(tmp_path / "out"))
    assert export(monkeypatch, *arguments) == 0
    said = capsys.readouterr().out
    assert "decomposed: applied to 6 of 6 softmaxes, raised from opset 20 to 23, the same function" in said
    assert "causal: applied to 2 of 6 Attention" in said
    assert "bidirectional: applied to 4 of 4 Attention" in said
    assert ExportedModel.open(tmp_path / "out").opset == 23
