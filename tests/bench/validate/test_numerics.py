"""Numerics: who is at fault, the runtime or the graph; and half precision that only a CPU survives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from isorun.bench.client import WorkerDied, WorkerError
from isorun.bench.validate import numerics
from isorun.bench.validate.compare import unit
from isorun.bench.validate.finding import Finding

from .conftest import Judge
from .graphs import Array, linear, model, node, says, statuses

RNG = np.random.default_rng(0)
TRUTH = {"y": RNG.standard_normal((4, 8))}
RIGHT = {"y": TRUTH["y"].astype(np.float32)}
WRONG = {"y": RIGHT["y"] + np.float32(0.01)}


class Fake:
    """Evaluators whose answers by runtime and optimisation are given."""

    def __init__(self, answers: dict[tuple[str, bool], Any]) -> None:
        self._answers = answers

    def run(self, runtime: str, feeds: Any, *, optimise: bool = True) -> dict[str, Array]:
        answer = self._answers[runtime, optimise]
        if isinstance(answer, Exception):
            raise answer
        result: dict[str, Array] = answer
        return result


def check(off: Any, on: Any) -> list[Finding]:
    fake: Any = Fake({("ort-cpu", False): off, ("ort-cpu", True): on})
    return numerics.check(fake, ["ort-cpu"], {}, TRUTH, {"y": unit(None, TRUTH["y"], "fp32") / 50}, "fp32")


def test_a_runtime_that_is_right_passes_twice() -> None:
    assert statuses(check(RIGHT, RIGHT)) == ["pass", "pass"]


def test_wrong_with_optimisations_only_is_the_runtimes_fault() -> None:
    findings = check(RIGHT, WRONG)
    assert statuses(findings) == ["pass", "fail"]
    assert "the runtime is at fault, not the export" in says(findings)
    assert "0.01" in says(findings)


def test_wrong_both_ways_blames_nobody() -> None:
    findings = check(WRONG, WRONG)
    assert statuses(findings) == ["fail", "fail"]
    assert "at fault" not in says(findings)


@pytest.mark.parametrize("answer", [{}, {"y": RIGHT["y"][:2]}, {"y": RIGHT["y"] * np.float32(np.nan)}])
def test_missing_misshapen_and_nan_outputs_fail(answer: Any) -> None:
    assert statuses(check(answer, answer)) == ["fail", "fail"]


@pytest.mark.parametrize(("error", "died"), [(WorkerError("no such operator"), False), (WorkerDied("SIGSEGV"), True)])
def test_a_runtime_without_an_answer_is_an_error(error: Exception, died: bool) -> None:
    (finding,) = check(error, RIGHT)
    assert finding.status == "error"
    assert str(error) in finding.says
    assert finding.data["died"] is died


def layer_norm(keepdims: int) -> onnx.ModelProto:
    """The pieces of a layer norm; without `keepdims` the mean lies along the other axis, and it is none."""
    nodes = [
        node("ReduceMean", "x", "m", axes=[-1], keepdims=keepdims),
        node("Sub", "x m", "d"),
        node("Pow", "d two", "p"),
        node("ReduceMean", "p", "v", axes=[-1], keepdims=keepdims),
        node("Add", "v eps", "e"),
        node("Sqrt", "e", "s"),
        node("Div", "d s", "n"),
        node("Mul", "n g", "h"),
        node("Add", "h b", "y"),
    ]
    shape = ("float32", [8, 8])
    constants = {
        "two": np.float32(2), "eps": np.float32(1e-5), "g": np.ones(8, np.float32), "b": np.zeros(8, np.float32)
    }  # fmt: skip
    return model(nodes, {"x": shape}, {"y": shape}, constants, opset=17)


def test_a_real_fusion_of_the_installed_runtime_is_blamed_on_it(judge: Judge) -> None:
    """microsoft/onnxruntime#30513: the fusion does not look at `keepdims`."""
    x = RNG.standard_normal((8, 8)).astype(np.float32)
    d = x.astype(float) - x.mean(-1)  # along the other axis
    y = d / np.sqrt((d * d).mean(-1) + 1e-5)
    report = judge(layer_norm(0), {"x": x}, {"y": y})
    assert report.verdict == "fail"
    assert statuses(report, "semantics") == ["pass"]
    assert "the runtime is at fault" in says(report)
    d = x.astype(float) - x.mean(-1, keepdims=True)
    y = d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)
    assert judge(layer_norm(1), {"x": x}, {"y": y}).verdict == "pass"


def masked_softmax(fill: float) -> onnx.ModelProto:
    """softmax(x + (1 - mask)·fill) in half precision."""
    nodes = [node("Sub", "one mask", "hide"), node("Mul", "hide fill", "bias"), node("Add", "x bias", "s"),
             node("Softmax", "s", "y")]  # fmt: skip
    shape = ("float16", [2, 4])
    constants = {"one": np.float16(1), "fill": np.array(fill, np.float16)}
    return model(nodes, {"x": shape, "mask": shape}, {"y": shape}, constants)


@pytest.mark.parametrize(("fill", "verdict"), [(-65504.0, "fail"), (-3e4, "pass")])
def test_a_mask_fill_that_overflows_in_true_half(judge: Judge, fill: float, verdict: str) -> None:
    """x - 65504 is -inf in half as soon as x rounds it there; a row of nothing but -inf is NaN."""
    x = np.full((2, 4), -40.0, np.float16)
    mask = np.array([[1, 1, 0, 0], [0, 0, 0, 0]], np.float16)
    report = judge(masked_softmax(fill), {"x": x, "mask": mask})
    assert report.verdict == verdict
    assert ("in true float16 y has 4 values" in says(report)) == (verdict == "fail")


def test_float64_truth_sees_what_float32_would_forgive(judge: Judge) -> None:
    x = RNG.standard_normal((2, 3, 8)).astype(np.float32)
    w = onnx.numpy_helper.to_array(linear().graph.initializer[0]).astype(float)
    assert judge(linear(), {"x": x}, {"y": x @ w}).verdict == "pass"
    assert judge(linear(), {"x": x}, {"y": x @ w * (1 + 3e-5)}).verdict == "fail"
