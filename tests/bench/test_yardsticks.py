"""Yardsticks in the precisions of a run, and the ceiling that a time is held to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from isorun.bench.plausible import ceiling
from isorun.bench.records import Measurement
from isorun.bench.runfolder import read_run
from isorun.bench.runner import Runner
from isorun.bench.suite import load
from isorun.bench.yardsticks import Yardstick, missing, rates
from isorun.export.exporter import export
from isorun.export.source import Source
from isorun.models import yardstick

from .fake_worker import Behaviour, FakeWorker, refused

FLOAT = [Yardstick("matmul"), Yardstick("matvec"), Yardstick("nothing")]
HALF = [Yardstick("matmul_small", "fp16")]
MACHINE: dict[str, Any] = {
    "matmul_gflops": {"torch": 100.0, "ort-cpu": 200.0},
    "memory_gbs": {"torch": 10.0, "ort-cpu": 20.0},
    "overhead_ns": {},
    "precisions": {
        "fp16": {"matmul_gflops": {"torch": 900.0, "ort-cpu": None}},
        "bf16": {"matmul_gflops": {"torch": 3.0, "ort-cpu": None}},
    },
}


def test_each_half_precision_of_a_run_has_yardsticks_of_its_own() -> None:
    assert missing({}, ("fp32",), ("torch",)) == FLOAT
    assert missing({}, ("fp32", "fp16", "int4"), ("torch", "ort-cpu")) == [*FLOAT, *HALF]
    assert missing({}, ("fp16",), ("torch",)) == [*FLOAT, *HALF]
    assert missing(MACHINE, ("fp32", "fp16"), ("torch",)) == []
    assert missing({**MACHINE, "precisions": {}}, ("bf16",), ("torch",)) == [Yardstick("matmul_small", "bf16")]


def test_an_accelerator_gets_products_that_it_is_not_done_with_at_once() -> None:
    wanted = missing({}, ("fp16",), ("torch-cuda",))
    assert wanted[0] == Yardstick("matmul_large")
    assert Yardstick("matmul_large", "fp16") in wanted
    assert yardstick.FLOPS["matmul_large"] == 64 * yardstick.FLOPS["matmul"]


def test_the_ceiling_is_that_of_the_precision_or_of_float32_where_that_is_more() -> None:
    assert ceiling(MACHINE, "fp32") == 200
    assert ceiling(MACHINE, "fp16") == 900
    assert ceiling(MACHINE, "bf16") == 200
    assert ceiling(MACHINE, "int4") is None
    assert ceiling({}, "fp16") is None


@pytest.mark.parametrize("odd", [None, 3, "text", [1], {"fp16": 3}, {"fp16": {"matmul_gflops": "x"}}])
def test_a_header_of_another_shape_has_no_ceiling(odd: object) -> None:
    assert ceiling({**MACHINE, "precisions": odd}, "fp16") is None


def test_rates_are_those_of_the_precision() -> None:
    assert rates(MACHINE, "fp32") == {"torch": (100.0, 10.0), "ort-cpu": (200.0, 20.0)}
    assert rates(MACHINE, "fp16") == {"torch": (900.0, 10.0)}, "bytes take as long in every precision"
    assert rates(MACHINE, "int8") == {}


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_yardstick_is_exported_in_half_precision(tmp_path: Path, dtype: str) -> None:
    source = Source("module", "isorun.models.yardstick:matmul_small")
    artifact = export(source, "forward", tmp_path / "out", dtype=dtype)
    weights = [tensor for tensor in onnx.load(artifact.model_path).graph.initializer if len(tensor.dims) == 2]
    assert [tensor.data_type for tensor in weights] == [
        TensorProto.FLOAT16 if dtype == "fp16" else TensorProto.BFLOAT16
    ]
    assert 2 * np.prod(weights[0].dims) * yardstick.SMALL == yardstick.FLOPS["matmul_small"]


def _half(folder: Path, flops: int, monkeypatch: pytest.MonkeyPatch) -> list[Measurement]:
    monkeypatch.setattr("isorun.bench.runner.flops", lambda *_: flops)
    chosen = {"models": ["gpt2"], "seq": "16", "past": "8", "dtypes": ["fp16"], "runtimes": ["torch"]}
    for _ in Runner(load("quick", **chosen), folder).run():
        pass
    return list(read_run(folder).measurements)


@pytest.mark.usefixtures("workers")
def test_a_half_time_is_held_to_the_product_in_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call takes 1 µs: the product of float32 reaches 2e6 operations a nanosecond, and 1e8 are too many."""
    FakeWorker.behaviours = {"torch": Behaviour(lambda n: 1000.0)}
    right = _half(tmp_path / "right", 10**9, monkeypatch)
    assert {m.status for m in right} == {"ok"}
    wrong = _half(tmp_path / "wrong", 10**11, monkeypatch)
    assert {m.status for m in wrong} == {"failed"}
    assert all("impossible time" in str(m.reason) for m in wrong)
    assert all(m.expected_ns for m in right)


@pytest.mark.usefixtures("workers")
def test_without_a_product_in_half_only_growth_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeWorker.behaviours = {"torch": Behaviour(lambda n: 1000.0)}
    FakeWorker.exports = {"export matmul_small-fp16": refused("no kernel")}
    found = _half(tmp_path / "run", 10**11, monkeypatch)
    assert {m.status for m in found} == {"ok"}
    assert "precisions" not in read_run(tmp_path / "run").header["environment"]
