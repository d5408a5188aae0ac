"""What a precision costs: divergence and flips against SciPy, layers by hand, and the faults that no noise explains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from scipy.special import rel_entr, softmax

from isorun.bench.validate import quantisation, walk
from isorun.bench.validate.candidate import Candidate, open_candidate
from isorun.bench.validate.program import Program
from isorun.bench.validate.walk import Step
from isorun.export.exporter import export
from isorun.export.source import Source

from .graphs import candidate, linear, local, model, node, says, statuses

RNG = np.random.default_rng(0)
LOGITS = 3 * RNG.standard_normal((2, 5, 40))


def tokens(found: Any, truth: Any = LOGITS) -> Any:
    (finding,) = quantisation.tokens({"logits": found}, {"logits": truth})
    return finding


def test_the_divergence_is_that_of_scipy() -> None:
    found = LOGITS + 0.1 * RNG.standard_normal(LOGITS.shape)
    expected = rel_entr(softmax(LOGITS, -1), softmax(found, -1)).sum(-1)
    finding = tokens(found)
    assert finding.data["kl_mean"] == pytest.approx(expected.mean())
    assert finding.data["kl_max"] == pytest.approx(expected.max())
    assert finding.data["tokens"] == 10


def test_a_flip_over_a_narrow_gap_is_a_near_tie_and_over_a_wide_one_is_none() -> None:
    truth = np.tile(np.arange(40.0), (1, 3, 1))
    truth[0, 0, 38] = 38.99  # 0.01 below the largest
    noisy = truth + 0.05 * RNG.standard_normal(truth.shape)
    noisy[0, 0, 38:] = 39.2, 39.0
    near = tokens(noisy, truth)
    assert (near.status, near.data["flips"], near.data["near_ties"]) == ("pass", 1, 1)
    wide = noisy.copy()
    wide[0, 2, 5] = 50
    found = tokens(wide, truth)
    assert (found.status, found.data["flips"], found.data["near_ties"]) == ("fail", 2, 1)
    assert "zero point" in found.remedy
    assert "the same at all 3" in tokens(truth, truth).says


def test_models_without_logits_have_no_tokens() -> None:
    assert quantisation.tokens({"y": LOGITS}, {"y": LOGITS}) == []


@pytest.mark.parametrize(("far", "status"), [(0.1, "pass"), (1.5, "fail")])
def test_an_error_as_large_as_the_output_fails(far: float, status: str) -> None:
    noise = RNG.standard_normal(LOGITS.shape) * far * np.sqrt(np.mean(LOGITS**2))
    (finding,) = quantisation.outputs({"y": LOGITS + noise}, {"y": LOGITS})
    assert finding.status == status
    assert finding.data["y"] == pytest.approx(far, rel=0.1)


def step(value: str, module: str, local: float, error: float, *, quantised: bool = True) -> Step:
    return Step(value=value, node=f"n_{value}", op="MatMul", module=module, line="", local=local, error=error,
                differs=local > 1e-9, says="", quantised=quantised)  # fmt: skip


STEPS = [
    step("a", "m.embedding", 0.0, 0.0, quantised=False),
    step("b", "m.layers.0.q", 0.01, 0.01),
    step("c", "m.layers.0.ffn.up", 0.03, 0.04),
    step("d", "m.layers.1.q", 0.02, 0.05),
    step("e", "m.layers.0", 0.0, 0.02, quantised=False),
    step("f", "m.head", 0.01, 0.06),
]


def test_layers_show_their_last_error_and_their_worst_operator() -> None:
    (finding,) = quantisation.by_layer(STEPS)
    rows = {row["layer"]: (row["value"], row["error"], row["added"]) for row in finding.data["layers"]}
    assert rows == {
        "m.embedding": ("a", 0.0, 0.0),
        "m.layers.1": ("d", 0.05, 0.02),
        "m.layers.0": ("e", 0.02, 0.03),
        "m.head": ("f", 0.06, 0.01),
    }
    assert "most is added by MatMul 'n_c' in m.layers.0.ffn.up: 0.03" in finding.says


def block(bits: int) -> onnx.ModelProto:
    proto = model([node("MatMulNBits", "x w s", "y", domain="com.microsoft", K=32, N=4, bits=bits, block_size=32)],
                  {"x": ("float32", [1, 32])}, {"y": ("float32", [1, 4])},
                  {"w": np.zeros((4, 1, 4 * bits), np.uint8), "s": np.ones((4, 1), np.float32)})  # fmt: skip
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return proto


def test_the_bits_of_a_graph(tmp_path: Path) -> None:
    assert [candidate(block(bits), tmp_path).bits for bits in (4, 8)] == [4, 8]
    assert candidate(linear(), tmp_path).bits is None


@pytest.mark.parametrize(
    ("one", "beyond"),
    [
        (step("a", "m", 0.2, 0.2), False),
        (step("a", "m", 0.6, 0.6), True),
        (step("a", "m", 1e-12, 0.5, quantised=False), False),
        (step("a", "m", 1e-6, 0.5, quantised=False), True),
    ],
)
def test_what_no_quantisation_explains(tmp_path: Path, one: Step, beyond: bool) -> None:
    assert (quantisation.beyond([one], candidate(block(4), tmp_path)) is one) == beyond


Quantised = Callable[[], tuple[Candidate, Program, Any]]


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Quantised:
    folder = tmp_path_factory.mktemp("quantised") / "gpt2"
    artifact = export(Source("preset", "gpt2", "tiny"), "forward", folder, dtype="int4")
    program = Program(artifact.source, "forward", artifact.opset)
    return lambda: (open_candidate(folder), program, artifact.signature().feeds({"batch": 2, "sequence": 9}))


def test_operators_that_are_not_quantised_are_exact_under_the_errors_of_those_that_are(quantised: Quantised) -> None:
    given, program, feeds = quantised()
    steps = walk.against(onnx.load(given.path), program, feeds)
    exact = [one.local for one in steps if not one.quantised]
    lossy = [one.local for one in steps if one.quantised]
    assert max(exact) < 1e-12
    assert 0.02 < min(lossy) < max(lossy) < 0.2
    assert len(lossy) == 14  # 13 matrices, and the lookup in the head's
    assert quantisation.beyond(steps, given) is None


def test_a_fault_under_the_errors_of_quantisation_is_found(quantised: Quantised) -> None:
    given, program, feeds = quantised()
    proto = onnx.load(given.path)
    norm = [one for one in proto.graph.node if one.op_type == "LayerNormalization"][2]
    for attribute in norm.attribute:
        attribute.f = 2e-5 if attribute.name == "epsilon" else attribute.f
    found = quantisation.beyond(walk.against(proto, program, feeds), given)
    assert found is not None
    assert found.value == norm.output[0]


def test_a_quantised_export_passes_with_its_figures(quantised: Quantised) -> None:
    given, _, feeds = quantised()
    findings = quantisation.check(given, local(given), feeds)
    assert statuses(findings) == ["pass"] * 3
    assert "KL" in says(findings, "pass")
    assert "model.stack.layers.1" in says(findings, "pass")
