"""Options of an export: logits of the last token, the opsets, and torch's exporters side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from isorun.bench.truth import distance
from isorun.export.exporter import ExportError, export
from isorun.export.exporters import compare
from isorun.export.opsets import OPSETS
from isorun.export.outputs import outputs64
from isorun.export.source import Source, SourceError
from isorun.runtimes.reference import Float64Graph

from ..conftest import Exported


def test_logits_of_the_last_token_are_those_of_all_tokens(exported: Exported, tmp_path: Path) -> None:
    last = export(Source("preset", "gpt2", "tiny"), "step", tmp_path / "last", last_logits=True)
    assert last.signature().outputs[0].shape == ("batch", 1, 256)
    assert last.source.last_logits
    whole = Float64Graph(exported("gpt2", "step").model_path)
    feeds = last.signature().feeds({"batch": 3, "sequence": 5, "past": 4}, padding="left")
    found, expected = Float64Graph(last.model_path).run(feeds), whole.run(feeds)
    assert distance(found["logits"], expected["logits"][:, -1:]) <= 1e-12
    assert distance(outputs64(last.module(), feeds)["logits"], expected["logits"][:, -1:]) <= 1e-9


def test_a_model_without_logits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="bert-base: has no logits of each token"):
        export(Source("preset", "bert-base", "tiny"), "forward", tmp_path / "out", last_logits=True)


@pytest.mark.parametrize(("opset", "whole"), [(25, {"Attention"})])
def test_the_table_of_opsets_tells_the_operators_that_stay_whole(opset: int, whole: set[str], tmp_path: Path) -> None:
    artifact = export(Source("preset", "llama3-8b", "tiny"), "forward", tmp_path / "out", opset=opset)
    assert {"Attention"} & artifact.ops.keys() == whole
    feeds = artifact.signature().feeds({"batch": 2, "sequence": 9}, padding="left")
    found = Float64Graph(artifact.model_path).run(feeds)
    for name, truth in outputs64(artifact.module(), feeds).items():
        assert distance(found[name], truth) <= 1e-6, name  # constants of a decomposed attention are float32


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"opset": 17}, "opset 17 is none of 18 to 25"),
        ({"dtype": "fp8"}, "dtype 'fp8' is none of"),
        ({"target": "tpu"}, "target 'tpu' is none of"),
    ],
)
def test_unknown_options_are_refused(options: dict[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=reason):
        export(Source("preset", "gpt2", "tiny"), "forward", tmp_path / "out", **options)  # type: ignore[arg-type]
    assert set(OPSETS) == set(range(18, 26))


def test_exporters_side_by_side_have_a_row_each_failures_too() -> None:
    rows = {row["exporter"]: row for row in compare(Source("preset", "lstm", "tiny"), "forward")}
    assert rows["dynamo"]["result"] == "the same at other sizes"
    assert rows["dynamo"]["nodes"] > rows["dynamo"]["operators"] > 5
    assert "isorun::lstm" in rows["torchscript"]["result"]
    assert rows["torchscript"]["nodes"] == ""
