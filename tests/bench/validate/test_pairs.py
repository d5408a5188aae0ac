"""Every fault of `pairs` fails and the right graph beside it passes; and what a comparison may never let through."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from .conftest import Judge
from .graphs import Array, attention, hidden, model, node, says
from .pairs import HEAD, HEADS, LOWER, PAIRS, K, N, Q, V, attend, fully_masked_row, window


@pytest.mark.parametrize("name", PAIRS)
def test_the_right_one_passes_and_the_faulty_one_fails(judge: Judge, name: str) -> None:
    pair = PAIRS[name]()
    right = judge(pair.right, pair.inputs, pair.expected)
    assert right.verdict == "pass", says(right)
    faulty = judge(pair.faulty, pair.inputs, pair.expected)
    assert faulty.verdict == "fail"
    assert "semantics" in says(faulty)
    assert "the runtime is at fault" not in says(faulty)


def test_a_window_off_by_one_shows_beyond_the_window_only(judge: Judge) -> None:
    short = {name: array[:, :, :4] for name, array in (("q", Q), ("k", K), ("v", V))}
    truth = attention(*short.values(), hidden(LOWER[:4, :4]))
    assert judge(window(5), short, {"y": truth}).verdict == "pass"
    assert judge(window(5), reference=None, expected=None).verdict == "pass"  # nothing to hold it to


@pytest.mark.parametrize(("name", "named"), [("RoPE layout", True), ("RoPE base", False)])
def test_the_other_layout_is_named_when_it_explains_all(judge: Judge, name: str, named: bool) -> None:
    pair = PAIRS[name]()
    assert ("the other RoPE layout" in says(judge(pair.faulty, pair.inputs, pair.expected))) == named


def test_rows_that_do_not_count(judge: Judge) -> None:
    pair = fully_masked_row()
    rows = np.ones((2, HEADS, N), bool)
    rows[:, :, 0] = False
    assert judge(pair.faulty, pair.inputs, {**pair.expected, "compare_rows": rows}).verdict == "pass"


def test_nan_in_the_graph_never_passes(judge: Judge) -> None:
    """0·∞ at every key that may be seen."""
    make = [node("Cast", "mask", "f", to=1), node("Sub", "one f", "hide"), node("Mul", "hide low", "bias")]
    more = {"mask": ("bool", ["n", "n"])}
    faulty = attend(*make, more=more, one=np.float32(1), low=np.float32(-np.inf))
    feeds = {"q": Q, "k": K, "v": V, "mask": LOWER}
    found = judge(faulty, feeds, {"y": attention(Q, K, V, hidden(LOWER))})
    assert found.verdict == "fail"
    assert "the first NaN is made by Mul '', in 'bias'" in says(found)
    assert "the first NaN is made by Mul '', in 'bias'" in says(judge(faulty, feeds))


@pytest.mark.parametrize("truth", [np.zeros((2, HEADS, N)), np.zeros((2, HEADS, N, HEAD + 1))])
def test_other_shapes_never_pass(judge: Judge, truth: Array) -> None:
    assert judge(window(4), {"q": Q, "k": K, "v": V}, {"y": truth}).verdict == "fail"


def test_a_comparison_of_nothing_is_no_pass(judge: Judge) -> None:
    """Empty inputs give empty outputs; an empty cache beside an output with values is well, alone it is not."""
    shape = ("float32", ["batch", "past"])
    proto = model(
        [node("Identity", "past", "present"), node("Relu", "x", "y")], {"x": shape, "past": shape}, {"y": shape}
    )
    proto.graph.output.add().CopyFrom(onnx.helper.make_tensor_value_info("present", 1, ["batch", "past"]))
    x, none = np.ones((2, 3), np.float32), np.zeros((2, 0), np.float32)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "n"
    assert judge(proto, {"x": x, "past": none}, {"y": x, "present": none}).verdict == "pass"
    found = judge(proto, {"x": x, "past": none}, {"present": none})
    assert found.verdict == "error"
    assert "empty arrays for present" in says(found, "error")
    for expected in ({"y": none}, None):
        found = judge(proto, {"x": none, "past": none}, expected)
        assert found.verdict == "error"
        assert "every output is empty" in says(found, "error")
