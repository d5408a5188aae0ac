"""The proof of a pass: a difference is found, and so is a graph that does not run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from isorun.bench.proof import LARGEST, Proof, prover
from isorun.export.artifact import ExportedModel
from isorun.export.source import Source

Exported = Callable[[str, str], ExportedModel]


@pytest.fixture
def gpt2(exported: Exported) -> tuple[ir.Model, Proof]:
    artifact = exported("gpt2", "step")
    return ir.load(artifact.model_path), Proof(artifact.signature())


def test_the_same_graph_is_proved(gpt2: tuple[ir.Model, Proof]) -> None:
    model, proof = gpt2
    assert proof(model, model.clone()) is None


def test_a_changed_weight_is_found(gpt2: tuple[ir.Model, Proof]) -> None:
    model, proof = gpt2
    wrong = model.clone()
    value = next(v for name, v in wrong.graph.initializers.items() if name.endswith("final_norm.weight"))
    assert value.const_value is not None
    value.const_value = ir.tensor(value.const_value.numpy() * np.float32(1 + 1e-6))
    assert "logits differs by" in str(proof(model, wrong))


def test_a_graph_that_does_not_run_is_no_proof(gpt2: tuple[ir.Model, Proof]) -> None:
    model, proof = gpt2
    wrong = model.clone()
    node = next(node for node in wrong.graph if node.op_type == "Attention")
    node.op_type = "NoSuchOperator"
    assert "NoSuchOperator" in str(proof(model, wrong))


def test_models_that_are_too_large_are_not_proved() -> None:
    assert prover(Source("preset", "llama-7b", "tiny").weight_bytes()) is Proof
    assert prover(Source("preset", "llama-7b", "full").weight_bytes()) is None
    assert (Source("preset", "llama-7b", "full").weight_bytes() or 0) > LARGEST
