"""What the harness adds to a call: its median on an empty model against a bare loop over the same binding calls."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from isorun.bench.subject import Subject
from isorun.export.artifact import adopt

LIMIT_NS = 2000


def _bare(path: Path) -> list[int]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(np.ones(16, np.float32)))
    binding.bind_output("y", "cpu")
    run, clock, times = session.run_with_iobinding, time.perf_counter_ns, []
    for _ in range(1000):
        start = clock()
        run(binding)
        times.append(clock() - start)
    return times


def test_the_harness_adds_less_than_two_microseconds_to_a_call(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [16]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "nothing", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    onnx.save(model, tmp_path / "model.onnx")
    adopt(tmp_path / "model.onnx", model).write_manifest()
    subject = Subject(str(tmp_path), "ort-cpu", threads=1)
    subject.stage({}, None)
    added = [median(subject.block(0.005)["ns"]) - median(_bare(tmp_path / "model.onnx")) for _ in range(9)]
    assert median(added) < LIMIT_NS
