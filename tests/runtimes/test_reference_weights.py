"""Weights apart from the graph give the same values, wherever they lie; rounded constants are found out."""

from __future__ import annotations

from math import pi, sqrt
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from isorun.runtimes import reference
from isorun.runtimes.base import RuntimeFailure
from isorun.runtimes.reference import Float64Graph
from isorun.runtimes.reference_constants import exact
from isorun.runtimes.reference_weights import load, skeleton, without_weights

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((300, 256)).astype(np.float32)
IDS = np.array([3, 299, 0])
TEXT = """<ir_version: 9, opset_import: ["" : 18]>
g (int64[n] ids, bool go) => (float[n, 300] y) {
    x = Gather (table, ids)
    t = Transpose <perm: ints = [1, 0]> (table)
    y = If (go) <
        then_branch = a () => (float[n, 300] u) { u = MatMul (x, t) },
        else_branch = b () => (float[n, 300] v) { z = MatMul (x, t)  v = Neg (z) }
    >
}"""


def model() -> onnx.ModelProto:
    """A table that is looked up, multiplied with, and read in a subgraph."""
    proto = parser.parse_model(TEXT)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(TABLE, "table"))
    return proto


@pytest.mark.parametrize("where", ["proto", "inline", "external"])
@pytest.mark.parametrize("at_once", [True, False])
def test_the_values_are_those_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, at_once: bool
) -> None:
    monkeypatch.setattr(reference, "AT_ONCE", 2**28 if at_once else 0)
    given: Path | onnx.ModelProto = model()
    if where != "proto":
        given = tmp_path / "model.onnx"
        onnx.save(model(), given, save_as_external_data=where == "external", size_threshold=0, location="w.bin")
    graph = Float64Graph(given)
    wide = TABLE.astype(float)
    for go, sign in ((True, 1), (False, -1)):
        y = graph.run({"ids": IDS, "go": np.array(go)})["y"]
        assert y.dtype == np.float64
        assert np.abs(y - sign * wide[IDS] @ wide.T).max() < 1e-12


def test_large_tensors_leave_the_graph_and_the_model_stays_as_it_is(tmp_path: Path) -> None:
    proto = model()
    before = proto.SerializeToString(deterministic=True)
    rest, weights = without_weights(proto)
    assert [tensor.name for tensor in rest.graph.initializer] == []
    assert (weights["table"] == TABLE).all()
    assert rest.graph.node == proto.graph.node
    assert proto.SerializeToString(deterministic=True) == before
    (stub,) = skeleton(proto).graph.initializer
    assert (stub.name, list(stub.dims), stub.data_type, stub.raw_data) == ("table", [300, 256], stub.FLOAT, b"")
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
    assert isinstance(load(tmp_path / "model.onnx")[1]["table"], np.memmap)


def test_weights_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    onnx.save(model(), inside / "model.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
    (inside / "w.bin").rename(tmp_path / "w.bin")
    proto = onnx.load(inside / "model.onnx", load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = "../w.bin"
    (inside / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(RuntimeFailure, match="outside the model's folder"):
        Float64Graph(inside / "model.onnx")


@pytest.mark.parametrize(
    "value", [sqrt(0.5), sqrt(2 / pi), 0.044715, 8**-0.25, 96**-0.5, 1 / 3, 1e-5, -sqrt(3), pi / 2]
)
def test_the_number_behind_a_constant_in_float32(value: float) -> None:
    assert exact(np.float32(value)) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, float("nan"), float("inf"), 0.3183541])
def test_numbers_that_are_exact_or_of_no_known_form_stay(value: float) -> None:
    assert exact(np.float32(value)) in (None, value)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_sparse_initializers_are_read_as_dense_ones(tmp_path: Path, *, pairs: bool, inside: bool) -> None:
    weight = np.where(RNG.random((8, 8)) < 0.1, RNG.standard_normal((8, 8)), 0).astype(np.float32)
    proto = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[n, 8] x) => (float[n, 8] y) { y = MatMul (x, w) }'
    )
    values = onnx.numpy_helper.from_array(weight[np.nonzero(weight)], "w")
    places = np.argwhere(weight) if pairs else np.flatnonzero(weight)
    proto.graph.sparse_initializer.append(
        onnx.helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(places), [8, 8])
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    x = RNG.standard_normal((3, 8))
    found = Float64Graph(proto if inside else path).run({"x": x})["y"]
    np.testing.assert_allclose(found, x @ weight.astype(float), rtol=1e-12, atol=1e-12)
    assert len(proto.graph.sparse_initializer) == 1, "the model that was given stays as it is"
