"""Half precision: what must not be computed in it stays in float32, and what is converted is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from isorun.export.finish import derive
from isorun.export.precision import convert
from isorun.export.precision.evaluate import evaluate
from isorun.export.storage import save
from isorun.models.phases import phases
from isorun.models.presets import PRESETS

from ...conftest import Exported
from .graphs import BOOL, FLOAT, INT64, graph, node, ops, relative

RNG = np.random.default_rng(0)


def run(model: ir.Model, **feeds: np.ndarray) -> np.ndarray:
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    return next(iter(evaluate(proto, feeds).values()))


def test_a_finite_mask_fill_becomes_a_quarter_of_the_range() -> None:
    lowest = np.array(np.finfo(np.float32).min, np.float32)
    model = graph(
        [
            node("Where", ["seen", "zero", "fill"], "bias"),
            node("Add", ["scores", "bias"], "masked"),
            node("Softmax", ["masked"], "y", axis=-1),
        ],
        {"scores": (FLOAT, (1, 4)), "seen": (BOOL, (1, 4))},
        {"y": (FLOAT, (1, 4))},
        {"zero": np.array(0, np.float32), "fill": lowest},
    )
    feeds = {"scores": np.float32([[1, 2, 3, 4]]), "seen": np.array([[True, True, False, False]])}
    notes = convert(model, "fp16", feeds)
    assert any("fill" in note and "-16376" in note for note in notes)
    assert not any("kept" in note for note in notes)
    masked = run(model, scores=feeds["scores"].astype(np.float16), seen=feeds["seen"])
    weights = np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum()
    assert np.allclose(masked, [[*weights, 0, 0]], atol=1e-3)


def test_values_that_overflow_on_the_example_keep_their_nodes_in_float32() -> None:
    """x·300 squared is 9e4·x²: beyond 65504 at x = 1, and its root is small again."""
    model = graph(
        [node("Mul", ["x", "c"], "a"), node("Mul", ["a", "a"], "b"), node("Sqrt", ["b"], "y")],
        {"x": (FLOAT, (8,))},
        {"y": (FLOAT, (8,))},
        {"c": np.array(300, np.float32)},
    )
    x = RNG.uniform(0.5, 2, 8).astype(np.float16)
    assert convert(model, "fp16", {"x": x.astype(np.float32)})[1].startswith("kept in float32: Mul Mul_b, Sqrt Sqrt_y:")
    assert relative(run(model, x=x), 300 * x.astype(np.float64)) < 1e-3


def test_without_the_example_the_same_graph_overflows() -> None:
    model = graph(
        [node("Mul", ["x", "x"], "b"), node("Sqrt", ["b"], "y")],
        {"x": (FLOAT, (1,))}, {"y": (FLOAT, (1,))}, {},
    )  # fmt: skip
    notes = convert(model, "fp16")
    assert notes == ["activations: not run, since no example inputs were given"]
    with np.errstate(over="ignore"):
        assert np.isinf(ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": np.float16([300])})[0])


@pytest.mark.parametrize(("dtype", "limit"), [("fp16", 1e-3), ("bf16", 8e-3)])
def test_angles_of_far_positions_are_computed_in_float32(dtype: str, limit: float) -> None:
    rates = (1.0 / 10_000 ** (np.arange(4) / 4)).astype(np.float32)
    model = graph(
        [
            node("Cast", ["positions"], "p", to=FLOAT),
            node("Mul", ["p", "rates"], "angles"),
            node("Cos", ["angles"], "cos"),
            node("Mul", ["x", "cos"], "y"),
        ],
        {"positions": (INT64, ("n", 1)), "x": (FLOAT, ("n", 4))},
        {"y": (FLOAT, ("n", 4))},
        {"rates": rates},
    )
    positions, x = np.array([[5], [4099], [120_001]]), np.ones((3, 4), np.float32)
    notes = convert(model, dtype, {"positions": positions, "x": x})
    assert next(note for note in notes if "positions" in note).startswith("kept in float32: Cast Cast_p, Cos Cos_cos")
    given = model.graph.inputs[1].dtype
    found = run(model, positions=positions, x=x.astype(given.numpy()))  # type: ignore[union-attr]
    assert np.abs(found.astype(np.float64) - np.cos(positions * rates.astype(np.float64))).max() < limit
    assert ops(model).count("Cast") == (2 if dtype == "fp16" else 4)  # in bfloat16 x and y are cast as well


def test_a_constant_that_would_become_zero_or_infinite_stays(tmp_path: Path) -> None:
    model = graph(
        [node("Add", ["x", "tiny"], "a"), node("Div", ["x", "a"], "b"), node("Mul", ["b", "huge"], "c"),
         node("Div", ["c", "huge"], "y")],
        {"x": (FLOAT, (2,))}, {"y": (FLOAT, (2,))},
        {"tiny": np.array(1e-12, np.float32), "huge": np.array(1e6, np.float32)},
    )  # fmt: skip
    notes = convert(model, "fp16")
    assert "kept in float32: Add Add_a, Div Div_y, Mul Mul_c: a constant outside the range of float16" in notes
    assert run(model, x=np.float16([0.0, 2.0])).tolist() == [0.0, 1.0]  # 0/1e-12, and not 0/0


def test_a_weight_beyond_the_range_is_refused_by_name(tmp_path: Path) -> None:
    table = np.ones((64, 64), np.float32)
    table[3, 5] = 7e4
    model = graph(
        [node("MatMul", ["x", "table"], "y")], {"x": (FLOAT, (1, 64))}, {"y": (FLOAT, (1, 64))}, {"table": table}
    )
    convert(model, "fp16")
    for external in (False, True):
        with pytest.raises(ValueError, match="weight table has a value of 7e\\+04, and float16 cannot hold it"):
            save(model, tmp_path / "m.onnx", external=external)


def test_an_operator_without_half_precision_stays() -> None:
    model = graph(
        [node("Range", ["zero", "n", "one"], "r"), node("Mul", ["r", "x"], "y")],
        {"n": (FLOAT, ()), "x": (FLOAT, (1,))}, {"y": (FLOAT, ("m",))},
        {"zero": np.array(0, np.float32), "one": np.array(1, np.float32)},
    )  # fmt: skip
    notes = convert(model, "fp16")
    assert "kept in float32: Range Range_r: the operator has no float16" in notes
    assert run(model, n=np.float16(4), x=np.float16([0.5])).tolist() == [0, 0.5, 1, 1.5]


def test_the_transpose_that_onnx_runtime_crashes_on_stays() -> None:
    """Loading what is half all through, with optimisations, ends the process: so this test only looks at the graph."""
    model = graph(
        [node("Transpose", ["x"], "t", perm=[1, 0, 2]), node("MatMul", ["t", "w"], "y")],
        {"x": (FLOAT, ("n", "b", 8))}, {"y": (FLOAT, ("b", "n", 8))}, {"w": np.eye(8, dtype=np.float32)},
    )  # fmt: skip
    assert any(
        note.startswith("kept in float32: Transpose Transpose_t: ONNX Runtime") for note in convert(model, "fp16")
    )


@pytest.mark.parametrize(("name", "phase"), [("llama3-8b", "step"), ("lstm", "step"), ("transformer-base", "encode")])
def test_an_exported_model_in_half(exported: Exported, tmp_path: Path, name: str, phase: str) -> None:
    assert phase in phases(PRESETS[name])
    single = exported(name, phase)
    half = derive(single, "fp16", tmp_path / "fp16")
    floats = {spec.dtype for spec in (*half.signature().inputs, *half.signature().outputs)} - {"int64"}
    assert floats == {"float16"}, "caches and logits are float16"
    # Rounding a number to 11 bits costs 2^-11/√3 = 2.8e-4 of it; a few layers cost a few times that.
    assert all(5e-5 < error < 2e-3 for error in half.errors.values())
    stored = [
        sum(t.const_value.nbytes for t in ir.load(a.model_path).graph.initializers.values()) for a in (single, half)
    ]  # type: ignore[union-attr]
    assert stored[1] < 0.51 * stored[0]


def test_bfloat16_keeps_float32_at_its_edges_and_costs_eight_bits(exported: Exported, tmp_path: Path) -> None:
    brain = derive(exported("gpt2", "step"), "bf16", tmp_path / "bf16")
    assert brain.signature() == exported("gpt2", "step").signature()
    assert all(5e-4 < error < 3e-2 for error in brain.errors.values())  # 2^-8/√3 = 2.3e-3 a number


def test_a_mask_that_is_multiplied_up_stays_finite_for_a_row_of_padding_alone() -> None:
    """(1 - mask)·-3.4e38, as torchscript exports write it: -inf for a whole row would be NaN after the softmax."""
    model = graph(
        [
            node("Cast", ["mask"], "m", to=FLOAT),
            node("Sub", ["one", "m"], "off"),
            node("Mul", ["off", "fill"], "bias"),
            node("Add", ["scores", "bias"], "masked"),
            node("Softmax", ["masked"], "y", axis=-1),
        ],
        {"scores": (FLOAT, (2, 3)), "mask": (INT64, (2, 3))},
        {"y": (FLOAT, (2, 3))},
        {"one": np.array(1, np.float32), "fill": np.array(np.finfo(np.float32).min, np.float32)},
    )  # fmt: skip
    scores, mask = np.zeros((2, 3), np.float16), np.array([[1, 1, 0], [0, 0, 0]])
    for feeds in ({"scores": scores.astype(np.float32), "mask": mask}, None):
        half = model.clone()
        convert(half, "fp16", feeds)
        assert np.allclose(run(half, scores=scores, mask=mask), [[0.5, 0.5, 0], [1 / 3] * 3], atol=1e-3)
        strict = ReferenceEvaluator(ir.to_proto(half)).run(None, {"scores": scores, "mask": mask})[0]
        assert np.isfinite(strict).all()
