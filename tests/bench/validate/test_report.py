"""The report: verdict, order, the table for people and the document for machines; and what a manifest may not do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import typer

from isorun.bench.validate import run
from isorun.bench.validate.finding import Finding, report
from isorun.commands.validate import validate as command
from isorun.export.artifact import ExportedModel
from isorun.export.source import Source

from .conftest import Judge
from .graphs import linear, save, says, statuses

X = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)


def of(*statuses: Any) -> Any:
    return report("model.onnx", [Finding(check="shapes", status=status, says=status) for status in statuses])


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ((), "pass"),
        (("pass", "note", "skipped"), "pass"),
        (("pass", "fail"), "fail"),
        (("pass", "error"), "error"),
        (("error", "fail"), "fail"),
    ],
)
def test_the_worst_finding_decides_and_comes_first(statuses: tuple[str, ...], verdict: str) -> None:
    found = of(*statuses)
    assert found.verdict == verdict
    assert [finding.status for finding in found.findings] == sorted(
        statuses, key=["error", "fail", "note", "skipped", "pass"].index
    )


def test_lines_fit_and_say_everything() -> None:
    words = " ".join(f"word{i}" for i in range(60))
    found = report("model.onnx", [Finding(check="semantics", status="fail", says=words, remedy=words[:150])])
    *rows, last = found.lines(width=80)
    assert max(map(len, rows)) <= 80
    assert rows[0].split()[:2] == ["fail", "semantics"]
    assert " ".join(rows).split()[2 : 2 + 60] == words.split()
    assert sum("->" in row for row in rows) == 1
    assert last == "fail: model.onnx (1 fail)"


def test_names_from_a_file_do_not_steer_the_terminal() -> None:
    found = report("m", [Finding(check="shapes", status="note", says="a\x1b[2Jb\nc\u202ed")])
    assert all(line.isprintable() for line in found.lines())


def test_the_document_is_json_and_whole(judge: Judge) -> None:
    document = judge(linear(), {"x": X}, {"y": np.zeros((2, 3, 8))}).to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["verdict"] == "fail"
    assert {finding["check"] for finding in document["findings"]} >= {
        "integrity", "structure", "semantics", "numerics", "invariants"
    }  # fmt: skip
    worst = document["findings"][0]
    assert (worst["check"], worst["status"]) == ("semantics", "fail")
    assert worst["data"]["y"] > 0.1


def artifact(folder: Path, source: Source) -> Path:
    path = save(linear(), folder)
    ExportedModel(
        folder=folder, phase="forward", dtype="fp32", opset=18, source=source, ops={}, files={}, limits={},
        versions={}, seconds=0.0, model=path.name,
    ).write_manifest()  # fmt: skip
    return folder


def test_a_manifest_cannot_have_code_run(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    found = judge(artifact(tmp_path, Source("module", "trap:factory")))
    assert "trap" not in sys.modules
    assert found.verdict == "pass"
    assert "--reference trap:factory" in says(found, "note")


def test_an_artifact_is_held_to_its_source_on_given_inputs_too(judge: Judge, exported: Any, tmp_path: Path) -> None:
    good = exported("bert-base", "forward")
    feeds = good.signature().feeds({"batch": 2, "sequence": 9})
    assert statuses(judge(good.folder, feeds), "semantics") == ["pass"]
    proto = onnx.load(good.model_path)
    for one in proto.graph.node:
        for attribute in one.attribute:
            if one.op_type == "LayerNormalization" and attribute.name == "epsilon":
                attribute.f = 1e-5  # BERT has 1e-12
    other = tmp_path / "other"
    other.mkdir()
    (other / "artifact.json").write_bytes((good.folder / "artifact.json").read_bytes())
    save(proto, other)
    found = judge(other, feeds)
    assert statuses(found, "semantics") == ["fail", "fail"]


@pytest.mark.parametrize("reference", ["gpt9", "gpt2@huge", "absent.onnx", "hf:nowhere"])
def test_references_that_are_not_there(judge: Judge, reference: str) -> None:
    found = judge(linear(), reference=reference)
    assert found.verdict == "error"
    assert reference.split("@")[0] in says(found, "error")


def test_another_file_as_the_reference(judge: Judge, tmp_path: Path) -> None:
    same, other = (save(linear(seed=seed), tmp_path, f"{seed}.onnx") for seed in (0, 1))
    assert judge(linear(), reference=str(same)).verdict == "pass"
    assert judge(linear(), reference=str(other)).verdict == "fail"
    assert judge(linear(), {"x": X}, reference=str(same)).verdict == "pass"
    assert judge(linear(), {"x": X}, reference=str(other)).verdict == "fail"


def test_the_page_is_written_and_the_exit_status_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = report("<b>.onnx", [Finding(check="semantics", status="fail", says="another function")])
    monkeypatch.setattr(run, "validate", lambda *_, **__: failed)
    with pytest.raises(typer.Exit) as left:
        command(Path("<b>.onnx"), html=tmp_path / "page.html")
    assert left.value.exit_code == 1
    text = (tmp_path / "page.html").read_text()
    assert "another function" in text
    assert "<b>.onnx" not in text
    with pytest.raises(SystemExit) as refused:
        command(Path("m.onnx"), html=tmp_path / "absent" / "page.html")
    assert refused.value.code == 2
