"""A reference with other names: what has one name pairs, the rest pairs in order, and what cannot pair is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from isorun.bench.validate import pairing
from isorun.bench.validate.finding import Refusal
from isorun.models.signature import Signature, TensorSpec

from .conftest import Judge
from .graphs import model, node, save, says

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def two(names: str = "x y z", *, turned: bool = False) -> onnx.ModelProto:
    """y = max(x, 0) and z = -x, under these names; `turned` declares the outputs in the other order."""
    x, y, z = names.split()
    shape = ("float32", ["batch", 4])
    outputs = {y: shape, z: shape}
    nodes = [node("Relu", x, y), node("Neg", x, z)]
    return model(nodes, {x: shape}, dict(reversed(outputs.items())) if turned else outputs)


@pytest.mark.parametrize("inputs", [None, X])
@pytest.mark.parametrize(
    ("mine", "verdict", "note"),
    [
        (two(), "pass", ""),
        (two(turned=True), "pass", ""),
        (two("in a b"), "pass", "in with x, a with y, b with z"),
        (two("x a z"), "pass", "a with y"),
        (two("x a b", turned=True), "fail", "b with y, a with z"),
    ],
)
def test_names_and_order(
    judge: Judge, tmp_path: Path, inputs: Any, mine: onnx.ModelProto, verdict: str, note: str
) -> None:
    reference = str(save(two(), tmp_path, "reference.onnx"))
    given = None if inputs is None else {mine.graph.input[0].name: inputs}
    found = judge(mine, given, reference=reference)
    assert found.verdict == verdict, "\n".join(found.lines())
    assert ("pair in order: " + note in says(found, "note")) if note else "pair in order" not in says(found, "note")


def test_a_reference_that_takes_what_the_model_lacks(judge: Judge, tmp_path: Path) -> None:
    shape = ("float32", ["batch", 4])
    other = model([node("Add", "x mask", "y")], {"x": shape, "mask": shape}, {"y": shape})
    found = judge(two(), reference=str(save(other, tmp_path, "reference.onnx")))
    assert found.verdict == "error"
    assert "the reference takes mask, and the model's inputs are x" in says(found, "error")


def test_what_cannot_have_one_shape_is_refused() -> None:
    def takes(*shape: int | str) -> Signature:
        return Signature((TensorSpec("past", "float32", shape),), ())

    assert pairing.check(takes("batch", 2), takes("batch", 2)) == []
    assert pairing.check(takes("batch", 2), takes("b", "heads")) == []
    for other in (takes("batch", 3), takes("batch", 2, 1)):
        with pytest.raises(Refusal, match=r"input past has the shape \['batch', 2\] in the model and"):
            pairing.check(takes("batch", 2), other)


def test_tensors_of_other_kinds_or_ranks_do_not_pair() -> None:
    def gives(*specs: tuple[str, str, int]) -> Signature:
        return Signature((), tuple(TensorSpec(name, dtype, ("n",) * rank) for name, dtype, rank in specs))

    ids = gives(("a", "int64", 1))
    assert pairing.pair(ids, gives(("b", "int32", 1))).outputs == {"a": "b"}
    assert pairing.pair(ids, gives(("b", "float32", 1))).outputs == {}
    assert pairing.pair(ids, gives(("b", "int64", 2))).outputs == {}
    assert pairing.pair(ids, gives(("b", "int64", 1), ("c", "int64", 1))).outputs == {}
    assert pairing.pair(gives(("a", "int64", 1), ("b", "int64", 1)), ids).outputs == {}
