"""The arbiter's own mechanics: protocol, dtypes, freed values, subgraphs, and failures that name their operator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import parser

from isorun.runtimes.base import Placement, RuntimeFailure
from isorun.runtimes.reference import RUNTIMES, Float64Graph, Reference


def graph(text: str, opset: int = 18) -> Float64Graph:
    return Float64Graph(parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}'))


def test_a_file_with_external_data_through_the_protocol(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    model = parser.parse_model("""
      <ir_version: 9, opset_import: ["" : 18]>
      agraph (float[N, 4] x, int64[1] i) => (float[N, 3] y, int64[1] j) { p = MatMul (x, w)  y = Tanh (p)  j = Neg (i) }
    """)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)

    runtime = Reference()
    assert (runtime.name, runtime.missing()) == ("reference", None)
    session = runtime.prepare(SimpleNamespace(model_path=path), threads=1)
    x = np.ones((2, 4), np.float32)
    outputs = session.fetch(session.run(session.stage({"x": x, "i": np.array([2**62 + 1])})))
    assert list(outputs) == ["y", "j"]
    assert outputs["y"].dtype == np.float64
    assert np.abs(outputs["y"] - np.tanh(x.astype(np.float64) @ weight.astype(np.float64))).max() < 1e-15
    assert outputs["j"].tolist() == [-(2**62) - 1]
    assert session.placement() == Placement(
        provider="reference", nodes={"reference": 3}, precision="float64", threads=1
    )
    session.close()


def test_float_feeds_are_widened_and_integers_are_not() -> None:
    double = graph(
        "agraph (float[N] x, float16[N] h, int64[N] i) => (float[N] y, float16[N] z, int64[N] j) "
        "{ y = Identity (x)  z = Identity (h)  j = Identity (i) }"
    )
    got = double.run({"x": np.float32([0.1]), "h": np.float16([0.1]), "i": np.array([2**62 + 1])})
    assert [got[name].dtype for name in "yzj"] == [np.float64, np.float64, np.int64]
    assert got["y"].tolist() == [float(np.float32(0.1))]
    assert got["j"].tolist() == [2**62 + 1]


def test_a_subgraph_reads_a_value_that_the_main_graph_no_longer_needs() -> None:
    double = graph("""agraph (float[N] x, bool flag) => (float[N] y) {
      first = Exp (x)
      second = Neg (x)
      other = Add (first, second)
      y = If (flag) < then_branch = a () => (float[N] t) { t = Add (first, first) },
                      else_branch = b () => (float[N] second) { unused = Identity (x) } >
    }""")
    x = np.array([0.3, -1.2])
    assert double.run({"x": x, "flag": np.array(True)})["y"].tolist() == (2 * np.exp(x)).tolist()
    assert double.run({"x": x, "flag": np.array(False)})["y"].tolist() == (-x).tolist()


def test_an_unnamed_output_is_not_taken_for_an_absent_input() -> None:
    double = graph("""agraph (float[2, 4] x, float[4] w, float high) => (float[2, 4] y) {
      normed, "", inverse = LayerNormalization (x, w)
      y = Clip (normed, "", high)
    }""")
    x, w = np.random.default_rng(0).standard_normal((2, 4)), np.ones(4)
    centred = x - x.mean(-1, keepdims=True)
    truth = np.minimum(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5), 0.5)
    assert np.abs(double.run({"x": x, "w": w, "high": np.array(0.5)})["y"] - truth).max() < 1e-14


def test_values_that_nobody_reads_any_more_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    double = graph("agraph (float[N] x) => (float[N] y) { a = Exp (x)  b = Neg (a)  c = Neg (b)  y = Neg (c) }")
    alive: list[set[str]] = []
    evaluate = sys.modules["isorun.runtimes.reference"]._evaluate

    def watched(node: object, values: dict[str, object]) -> None:
        alive.append(set(values) - {"", "x"})
        evaluate(node, values)

    monkeypatch.setattr("isorun.runtimes.reference._evaluate", watched)
    double.run({"x": np.zeros(2)})
    assert alive == [set(), {"a"}, {"b"}, {"c"}]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("agraph (float[2] x) => (float[2] y) { y = Reshape (x, x) }", r"^Reshape \(y\): "),
        ("agraph (float[2] x, float[3] z) => (float[2] y) { y = Add (x, z) }", r"^Add \(y\): .*broadcast"),
        (
            "agraph (float[2] x) => (float[2] y) { y = RandomNormal <shape = [2]> () }",
            r"^RandomNormal \(y\): .*float32",
        ),
        ("agraph (float[2] x) => (float[2] y) { y = Scatter (x, x, x) }", r"^agraph: .*'Scatter'"),
        ("agraph (float[2] x, float[2] w) => (float[2] y) { y = Neg (w) }", r"^no feed for the input w$"),
    ],
)
def test_failures_are_one_line_that_names_the_operator(text: str, reason: str) -> None:
    with pytest.raises(RuntimeFailure, match=reason) as failure:
        graph(text).run({"x": np.zeros(2), "z": np.zeros(3)})
    assert "\n" not in str(failure.value)


def test_an_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(RuntimeFailure, match=r"model\.onnx: .*No such file"):
        Reference().prepare(SimpleNamespace(model_path=path), threads=1)
    path.write_bytes(b"not a model")
    with pytest.raises(RuntimeFailure, match=r"model\.onnx: "):
        Float64Graph(str(path))


def test_missing_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isorun.runtimes.reference.find_spec", lambda name: None)
    assert Reference().missing() == "pip install onnx scipy"


def test_importing_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, isorun.runtimes.reference, isorun.runtimes.reference_ops;"
        "print([m for m in sys.argv[1:] if m in sys.modules])"
    )
    heavy = ["torch", "onnx", "onnxruntime", "scipy"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert [runtime.name for runtime in RUNTIMES] == ["reference"]


def test_running_it_imports_neither_torch_nor_onnxruntime() -> None:
    code = """
import sys, numpy as np
from onnx import parser
from isorun.runtimes.reference import Float64Graph
model = parser.parse_model('<ir_version: 9, opset_import: ["" : 20]> g (float[N] x) => (float[N] y) { y = Gelu (x) }')
Float64Graph(model).run({"x": np.ones(3)})
print([m for m in ("torch", "onnxruntime") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
