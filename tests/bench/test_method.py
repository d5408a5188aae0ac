"""Benchmarks that went wrong in public, as cases: what they show must be refused here, and what is right must pass.

Calls that are not waited for (black-forest-labs/flux#147), the first run of each shape in the mean
(microsoft/onnxruntime#17443), memory kept across sessions (microsoft/onnxruntime#18749), sub-graphs counted twice
(microsoft/onnxruntime-inference-examples#501; see test_graph_cost.py). And the contract that any comparison is held to.
"""

from __future__ import annotations

import mmap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from isorun.bench import fairness, measure
from isorun.bench.memory import cache_bytes, parts, peak_bytes, reset_peak, resident_bytes
from isorun.bench.plausible import cold, refusal
from isorun.bench.records import Case, Measurement, Placement
from isorun.bench.runfolder import read_run
from isorun.bench.runner import Runner
from isorun.bench.suite import load
from isorun.bench.worker import Worker
from isorun.export.artifact import adopt

from .fake_worker import Behaviour, FakeWorker

PEAK = 60e3  # operations a nanosecond: 60 TFLOP/s


def _made(
    ms: float | list[float], *, n: int = 4096, flops: int | None = None, runtime: str = "torch", **placed: Any
) -> Measurement:
    case = Case(model="m", size="s", phase="forward", dtype="fp32", runtime=runtime, batch=1, seq=n, past=0)
    samples = ms if isinstance(ms, list) else [ms] * 5
    facts = {"device": "cuda", "tf32": "off", "affinity": "0, 1", "copies": "outside the timed call"}
    placement = Placement(**{"provider": "p", "nodes": {}, "precision": "fp32", "threads": 2, "facts": facts, **placed})
    return Measurement(
        case=case,
        status="ok",
        blocks_ns=(tuple(round(1e6 * value) for value in samples),),
        flops=2 * n**3 if flops is None else flops,
        placement=placement,
    )


def test_a_time_that_was_not_waited_for_is_impossible() -> None:
    launch, right, longer = _made(0.02), _made(3.1), _made(0.02, n=8192)
    assert "6,871,948 GFLOP/s, where a matrix product reaches 60,000" in str(refusal(launch, (), PEAK))
    assert refusal(right, (), PEAK) is None
    assert "impossible time" in str(refusal(longer, [launch], PEAK))


def test_a_time_that_does_not_grow_with_the_work_is_impossible() -> None:
    """Below the peak, since each call also waits for something that has nothing to do with it."""
    short, long = _made(20.0, n=4096), _made(20.0, n=16384)
    peak = 160e3
    assert refusal(long, (), peak) is None
    said = refusal(long, [short], peak)
    assert "64 times the work of n = 4096 in 1 times the time" in str(said)
    assert refusal(_made(20.0 + 80.0, n=16384), [short], peak) is None
    assert "was the call waited for" in str(refusal(_made(20.0, n=20000), [short], None))


def test_a_time_that_is_all_overhead_may_be_flat() -> None:
    short, long = _made(0.05, flops=10**6), _made(0.05, n=8192, flops=2 * 10**6)
    assert refusal(long, [short], PEAK) is None
    assert refusal(long, [short], None) is None


def test_the_runner_shows_no_impossible_time_and_keeps_its_samples(tmp_path: Path, workers: type[FakeWorker]) -> None:
    workers.behaviours = {  # the yardsticks have no length: 200 GFLOP/s
        "torch": Behaviour(call_ns=lambda n: 1e7 if n == 1 else 1e6 * n),
        "ort-cpu": Behaviour(call_ns=lambda n: 1e7 if n == 1 else 2000.0),
    }
    for _ in Runner(load("quick", models=["gpt2"], seq="64,512", past="8"), tmp_path / "run").run():
        pass
    rows = {(m.case.runtime, m.case.length): m for m in read_run(tmp_path / "run").measurements}
    wrong, right = rows["ort-cpu", 512], rows["torch", 512]
    assert (wrong.status, right.status) == ("failed", "ok")
    assert "impossible time" in str(wrong.reason)
    assert wrong.blocks_ns


@pytest.mark.parametrize(("warm", "first"), [(2.0, 62.0), (4.0, 72.0), (8.0, 84.0)])
def test_the_first_run_of_a_shape_does_not_count(warm: float, first: float) -> None:
    samples = [first, *(warm * factor for factor in (1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.0, 1.01, 0.99))]
    found = _made(samples)
    assert "the first run of this shape is among the samples" in str(cold(found))
    assert cold(_made(samples[1:])) is None
    assert found.median_ns == pytest.approx(warm * 1e6, rel=0.01), "a median does not see it, a mean would"
    assert np.mean(samples) > 1.5 * warm
    assert cold(_made([*samples, first])) is None, "a machine that is interrupted is not a cold start"


def test_every_shape_is_warmed_up_before_it_is_timed(tmp_path: Path, workers: type[FakeWorker]) -> None:
    for _ in Runner(load("quick", models=["gpt2"], seq="64,128", past="8"), tmp_path / "run").run():
        pass
    mine = [op for op, runtime in workers.asked if runtime == "torch" and op in ("stage", "block")]
    starts = [index for index, op in enumerate(mine) if op == "stage"]
    assert (
        len(starts) == 3 + 3
    )  # three yardsticks, and three lengths: each is staged, which warms up, before its blocks
    assert all(mine[index + 1] == "block" for index in starts)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"threads": 1}, "threads 2 against 1"),
        ({"precision": "bf16"}, "precision fp32 against bf16"),
        ({"facts": {"device": "cpu"}}, "device cuda against cpu"),
        ({"facts": {"tf32": "on"}}, "tf32 off against on"),
        ({"facts": {"affinity": "0"}}, "affinity 0, 1 against 0"),
        ({"facts": {"copies": "timed"}}, "copies outside the timed call against timed"),
        ({"nodes": {"CPUExecutionProvider": 9, "p": 3}}, "provider: 9 of 12 nodes of ort-cuda ran elsewhere than on p"),
    ],
)
def test_a_comparison_that_breaks_the_contract_is_refused_with_the_difference(
    change: dict[str, Any], said: str
) -> None:
    base, fair = _made(1.0), _made(2.0, runtime="ort-cuda")
    assert fairness.refusal(base, fair) is None
    assert fairness.refusal(base, _made(2.0, runtime="ort-cuda", **change)) == (
        f"ort-cuda is not compared with torch: {said}"
    )


def test_cases_that_differ_are_not_compared() -> None:
    base = _made(1.0)
    other = replace(base, case=replace(base.case, past=128, dtype="fp16"))
    assert fairness.differences(base, other) == ["dtype fp32 against fp16", "past 0 against 128"]


def test_tf32_is_no_difference_where_nothing_is_multiplied_in_float32() -> None:
    base, other = _made(1.0), _made(1.0, facts={"tf32": "on"})
    half = [replace(m, case=replace(m.case, dtype="fp16")) for m in (base, other)]
    assert fairness.refusal(base, other) is not None
    assert fairness.refusal(*half) is None


def test_memory_does_not_grow_with_every_model_that_is_loaded(tmp_path: Path) -> None:
    """A megabyte of weights loaded over and over: what the allocator keeps is not kept once more each time."""
    side, mib = 512, 1 << 20
    weights = np.random.default_rng(0).standard_normal((side, side)).astype(np.float32)
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", side]) for name in "xy"]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", value[:1], value[1:], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    onnx.save(model, tmp_path / "model.onnx")
    adopt(tmp_path / "model.onnx", model).write_manifest()
    worker, sizes = Worker(), []
    for _ in range(40):
        loaded = worker.answer({"op": "load", "folder": str(tmp_path), "runtime": "ort-cpu", "threads": 1})
        assert "error" not in loaded
        assert worker.answer({"op": "stage", "sizes": {"n": 2}, "truth": None}) == {"errors": []}
        sizes.append(resident_bytes())
    assert (sizes[-1] - sizes[9]) / 30 < 0.25 * mib


def test_each_length_has_a_peak_of_its_own() -> None:
    reset_peak()
    with mmap.mmap(-1, 64 << 20) as block:  # an array might come from memory that the process keeps
        block.write(b"1" * len(block))
        high = peak_bytes()
    reset_peak()
    assert high - peak_bytes() > 32 << 20
    assert 0 < resident_bytes() <= peak_bytes()


def test_without_proc_the_peak_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("STATUS", "CLEAR"):
        monkeypatch.setattr(f"isorun.bench.memory.{name}", tmp_path / "nothing" / "there")
    reset_peak()
    assert peak_bytes() == resident_bytes() > 1 << 24


def test_memory_is_split_without_a_rest() -> None:
    found = parts(empty=100, loaded=150, after=210, peak=300, cache=20)
    assert found == {"weights": 50, "cache": 20, "arena": 40, "activations": 90}
    assert sum(found.values()) == 300 - 100
    assert cache_bytes({"past_key_values.0.key": 5, "present.0.key": 7, "logits": 100, "input_ids": 3}) == 12


def test_a_runtime_process_has_a_limit_of_memory() -> None:
    assert measure._memory("ort-cuda") is None
    assert measure._memory("ort-tensorrt") is None
    limit = measure._memory("ort-cpu")
    assert limit is not None
    assert 1 << 27 < limit < 1 << 50
