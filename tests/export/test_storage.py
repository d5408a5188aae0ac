"""How graphs are stored: aligned, once, and inside the file where there is little."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from isorun.export import storage
from isorun.export.finish import source_bytes
from isorun.export.storage import DoubledWeights, refuse_doubled, save

from ..conftest import Exported

LARGE = np.arange(600 * 512, dtype=np.float32).reshape(600, 512)  # 1.2 MB


def model(**weights: np.ndarray) -> ir.Model:
    """y = the sum of all weights' first values: what is stored is what counts here."""
    nodes = [helper.make_node("ReduceSum", [name], [f"{name}_sum"], keepdims=0) for name in weights]
    nodes.append(helper.make_node("Sum", [f"{name}_sum" for name in weights], ["y"]))
    graph = helper.make_graph(
        nodes, "g", [], [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ())],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10))


def external(path: Path) -> dict[str, dict[str, str]]:
    proto = onnx.load(path, load_external_data=False)
    return {t.name: {e.key: e.value for e in t.external_data} for t in proto.graph.initializer if t.external_data}


def test_external_data_on_request_is_aligned_and_small_constants_stay(tmp_path: Path) -> None:
    save(model(small=np.ones(8, np.float32), a=LARGE, b=LARGE + 1), tmp_path / "m.onnx", external=True)
    outside = external(tmp_path / "m.onnx")
    assert set(outside) == {"a", "b"}
    assert all(entry["location"] == "m.onnx.data" for entry in outside.values())
    assert all(int(entry["offset"]) % storage.ALIGNMENT == 0 for entry in outside.values())
    back = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "m.onnx").graph.initializer}
    assert np.array_equal(back["b"], LARGE + 1)


@pytest.mark.parametrize(("limit", "outside"), [(1 << 20, True), (2 << 20, False)])
def test_external_data_above_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, outside: bool
) -> None:
    monkeypatch.setattr(storage, "EXTERNAL_ABOVE", limit)
    save(model(a=LARGE), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").exists() is outside


@pytest.mark.parametrize("other", [LARGE, LARGE.T.copy()], ids=["equal", "transposed"])
def test_weights_that_are_there_twice_are_refused_with_the_pair(other: np.ndarray) -> None:
    doubled = model(embedding=LARGE, unlike=LARGE[:300] + 1, head=other)
    with pytest.raises(DoubledWeights, match="embedding and head hold the same numbers"):
        refuse_doubled(doubled, int(LARGE.nbytes * 1.5))
    refuse_doubled(doubled, int(LARGE.nbytes * 2.5))


def test_a_graph_that_grew_otherwise_names_the_largest() -> None:
    with pytest.raises(
        DoubledWeights, match="stores 1,228,800 bytes of weights and the source has 4: the largest is a"
    ):
        refuse_doubled(model(a=LARGE), 4)


@pytest.mark.parametrize(("name", "phase"), [("gpt2", "step"), ("transformer-base", "encode"), ("llama3-8b", "step")])
def test_tied_weights_are_stored_once(exported: Exported, name: str, phase: str) -> None:
    """gpt2 and the Transformer share the table of embeddings with the head."""
    artifact = exported(name, phase)
    module = artifact.module()
    by_hand = sum({p.data_ptr(): 4 * p.numel() for p in (*module.parameters(), *module.buffers())}.values())
    assert artifact.sizes["source_bytes"] == source_bytes(module) == by_hand
    assert artifact.sizes["file_bytes"] == sum(
        f.stat().st_size for f in artifact.folder.iterdir() if f.name != "artifact.json"
    )
    stored = sum(t.const_value.nbytes for t in ir.load(artifact.model_path).graph.initializers.values())  # type: ignore[union-attr]
    assert stored <= 1.02 * by_hand + 1024
