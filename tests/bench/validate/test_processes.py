"""Runtimes in their own processes: a crash, a hang and a hunger for memory are errors, and the command lives on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from isorun.bench import evaluation
from isorun.bench.client import WorkerDied, WorkerError
from isorun.bench.validate import evaluators as module
from isorun.bench.validate import placement, run
from isorun.bench.validate.checker import Checker
from isorun.bench.validate.evaluators import Evaluators, Unloadable
from isorun.bench.validate.finding import Refusal
from isorun.export.source import Source
from isorun.runtimes.base import RuntimeFailure

from .graphs import Array, Local, LocalChecker, linear, model, node, save, says

X: dict[str, Any] = {"x": np.ones((1, 2, 8), np.float32)}


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`opened(model)`: real evaluators of a model, with time for a machine that has other work."""
    monkeypatch.setattr(module, "TIMEOUT_S", 120.0)
    made: list[Evaluators] = []

    def get(proto: onnx.ModelProto) -> Evaluators:
        made.append(Evaluators(save(proto, tmp_path), "fp32", Source("file", ""), "forward"))
        return made[-1]

    yield get
    for one in made:
        one.__exit__()


def process(given: Evaluators) -> Any:
    (worker,) = given._workers.values()
    return worker._process


def test_a_crash_is_noticed_and_not_repeated(opened: Any) -> None:
    given = opened(linear())
    assert given.run("ort-cpu", X)["y"].shape == (1, 2, 8)
    os.kill(process(given).pid, signal.SIGSEGV)
    for _ in range(2):
        with pytest.raises(WorkerDied, match="SIGSEGV"):
            given.run("ort-cpu", X)


def endless() -> onnx.ModelProto:
    """A loop without a limit, whose condition stays true."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", "go", "on"), node("Neg", "v", "w")],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, [1, 2, 8])],
        [info("on", TensorProto.BOOL, []), info("w", TensorProto.FLOAT, [1, 2, 8])],
    )
    shape = ("float32", [1, 2, 8])
    return model([node("Loop", "_ true x", "y", body=body)], {"x": shape}, {"y": shape}, {"true": np.array(True)})


def test_a_hang_ends_after_the_limit(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 3.0)
    given = opened(endless())
    with pytest.raises(WorkerDied, match=r"within 3"):
        given.run("ort-cpu", X)
    assert not given._workers


def test_of_a_large_model_one_process_at_a_time_holds_the_weights(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE", -1)
    given = opened(linear())
    given.ahead(["reference", "ort-cpu", "nobody"], [X])
    assert list(given._workers) in ([("ort-cpu", True)], [("nobody", True)])
    known = given.run("reference", X)
    assert ("reference", True) not in given._workers, "the answer was kept"
    assert np.abs(known["y"] - given.run("ort-cpu", X)["y"]).max() < 1e-5
    given.run("reference", X, again=True)
    assert list(given._workers) == [("reference", True)]
    with pytest.raises(WorkerError, match="nobody"):
        given.run("nobody", X)


def test_the_session_of_the_manifest_is_the_one_that_runs_but_not_without_optimisations(tmp_path: Path) -> None:
    path = save(linear(), tmp_path)
    refused = {"enable_profiling": "1"}
    with Evaluators(path, "fp32", Source("file", ""), "forward", session=refused) as given:
        with pytest.raises(WorkerError, match="session option enable_profiling = '1' is none that a manifest may set"):
            given.run("ort-cpu", X)
        assert given.run("ort-cpu", X, optimise=False).keys() == {"y"}


def test_the_walk_in_a_process_of_its_own(tmp_path: Path) -> None:
    source = Source("file", str(save(linear(seed=1), tmp_path, "source.onnx")))
    with Evaluators(save(linear(), tmp_path), "fp32", source, "forward") as given:
        (step,) = given.walk(X, 18)
    assert (step.value, step.op, step.differs, step.weights) == ("y", "MatMul", True, ("w",))


def test_hunger_for_memory_is_an_error_of_that_process(opened: Any) -> None:
    shape = ("float32", ["n", "m"])
    constants = {"s": np.array([2**20, 2**20])}
    given = opened(model([node("Expand", "x s", "y")], {"x": ("float32", [1, 1])}, {"y": shape}, constants))
    with pytest.raises(WorkerError):
        given.run("ort-cpu", {"x": np.ones((1, 1), np.float32)})


def test_outputs_too_large_to_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "limit", lambda memory_bytes: None)  # not of this process
    source = {"kind": "file", "name": "", "size": "", "seed": 0}
    shared = {
        "dtype": "fp32",
        "runtime": "reference",
        "optimise": True,
        "source": source,
        "phase": "forward",
        "session": {},
    }
    given = {"inputs": str(tmp_path / "in.npz"), "names": ["x"], "outputs": str(tmp_path / "out.npz")}
    np.savez(tmp_path / "in.npz", X["x"])
    path = str(save(linear(), tmp_path))
    enough = int(X["x"].size * 8 / evaluation.OUTPUT_SHARE)
    assert evaluation.Evaluation(path, memory_bytes=enough, **shared).evaluate(**given)["names"] == ["y"]
    with pytest.raises(RuntimeFailure, match="too much to compare"):
        evaluation.Evaluation(path, memory_bytes=enough - 10, **shared).evaluate(**given)


def test_a_model_that_does_not_load(opened: Any) -> None:
    proto = model([node("Nothing", "x", "y", domain="com.example")], {"x": ("float32", [1])}, {"y": ("float32", [1])})
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(Unloadable, match=r"com\.example"):
        opened(proto).run("ort-cpu", X)


@pytest.mark.parametrize("name", ["x" * 70_000, "a/../b.npy", "x\0y", "file", "%s{}[/]"])
def test_any_name_of_an_input_and_output_will_do(opened: Any, name: str) -> None:
    proto = linear()
    proto.graph.input[0].name = proto.graph.node[0].input[0] = name
    proto.graph.node[0].output[0] = proto.graph.output[0].name = f"{name}:"
    assert list(opened(proto).run("reference", {name: X["x"]})) == [f"{name}:"]


@pytest.mark.parametrize("runtime", ["ort-cpu", "reference"])
def test_text_is_no_tensor_of_numbers(opened: Any, runtime: str) -> None:
    """ONNX Runtime's binding crashes on it, which is an error as well."""
    shape = ("float32", [1, 2, 8])
    proto = model([node("Cast", "x", "y", to=TensorProto.STRING)], {"x": shape}, {"y": ("object", [1, 2, 8])})
    with pytest.raises(WorkerError, match=r"no tensor of numbers|SIGSEGV"):
        opened(proto).run(runtime, X)


def laughs(depth: int = 40) -> onnx.ModelProto:
    """Functions that call the one below twice: 2^depth nodes once they are inlined."""
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("l", 1)]
    proto = model([node("F0", "x", "y", domain="l")], {"x": ("float32", [2])}, {"y": ("float32", [2])})
    proto.opset_import.append(versions[1])
    for i in range(depth):
        inner = [node(f"F{i + 1}", "a", "c", domain="l"), node(f"F{i + 1}", "c", "b", domain="l")]
        proto.functions.append(helper.make_function("l", f"F{i}", ["a"], ["b"], inner, versions))
    proto.functions.append(helper.make_function("l", f"F{depth}", ["a"], ["b"], [node("Neg", "a", "b")], versions[:1]))
    return proto


def test_a_checker_that_hangs_is_replaced(tmp_path: Path) -> None:
    bad, good = save(laughs(), tmp_path, "bad.onnx"), save(linear(), tmp_path)
    with Checker() as checker:
        assert checker.refusal(good) is None
        patience, checker._timeout_s = checker._timeout_s, 2.0  # a process that has started needs no more
        with pytest.raises(WorkerDied, match="within 2 s"):
            checker.refusal(bad)
        checker._timeout_s = patience
        assert checker.refusal(good) is None


class Crashing(Local):
    """OpenVINO crashes, or the process of the arbiter does."""

    victim = "openvino"

    def run(self, runtime: str, feeds: Any, *, optimise: bool = True, again: bool = False) -> dict[str, Array]:
        if runtime == self.victim:
            raise WorkerDied("killed by SIGSEGV")
        return super().run(runtime, feeds, optimise=optimise, again=again)


@pytest.mark.parametrize("with_inputs", [True, False])
def test_a_crash_is_an_error_of_the_whole_although_another_runtime_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_inputs: bool
) -> None:
    monkeypatch.setattr(run, "Evaluators", Crashing)
    monkeypatch.setattr(run, "Checker", LocalChecker)
    monkeypatch.setattr(placement, "choose", lambda asked: ["ort-cpu", "openvino"])
    np.savez(tmp_path / "inputs.npz", **X)
    report = run.validate(save(linear(), tmp_path), inputs=tmp_path / "inputs.npz" if with_inputs else None)
    assert report.verdict == "error"
    assert "SIGSEGV" in says(report, "error")


def test_runtimes_that_are_asked_for_and_missing() -> None:
    with pytest.raises(Refusal, match="ort-cuda was asked for and cannot run here"):
        placement.choose(["ort-cpu", "ort-cuda"])
    with pytest.raises(Refusal, match=r"unknown runtime 'tensorrt'; there are .*ort-cpu"):
        placement.choose(["tensorrt"])
    with pytest.raises(Refusal, match="unknown runtime 'reference'"):
        placement.choose(["reference"])
    assert placement.choose(["ort-cpu"]) == ["ort-cpu"]
    assert placement.choose([])[0] == "ort-cpu"


def test_where_the_nodes_ran(opened: Any) -> None:
    given = opened(linear())
    given.run("ort-cpu", X)
    (finding,) = placement.check(given.placements)
    assert finding.status == "pass"
    assert "1 nodes on CPUExecutionProvider" in finding.says
