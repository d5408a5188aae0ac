"""What OpenVINO says of a model that it refuses, without where in its own source it says so."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from isorun.export.artifact import bare
from isorun.runtimes.base import RuntimeFailure
from isorun.runtimes.openvino import OpenVino, _said


def test_what_it_says_is_kept_and_where_is_not() -> None:
    text = (
        "Exception from src/inference/src/cpp/core.cpp:84:\nCheck 'false' failed at src/frontends/report.cpp:151:\n"
        "FrontEnd API failed with OpConversionFailure:\nno conversion for Abacus"
    )
    assert _said(RuntimeError(text)) == "FrontEnd API failed with OpConversionFailure: no conversion for Abacus"


@pytest.mark.skipif(find_spec("openvino") is None, reason="OpenVINO is not installed")
def test_a_refusal_names_the_operator_and_no_line_of_its_source(tmp_path: Path) -> None:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Abacus", ["x"], ["y"], domain="nobody")], "g", value[:1], value[1:])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("nobody", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "model.onnx")
    with pytest.raises(RuntimeFailure) as caught:
        OpenVino().prepare(bare(tmp_path / "model.onnx", "fp32"), 1)
    said = str(caught.value)
    assert said.startswith("openvino refuses the model: ")
    assert "nobody.Abacus" in said
    assert ".cpp" not in said
