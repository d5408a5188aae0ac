"""ONNX Runtime's attention kernels against each other: what the thresholds of export/passes rest on.

    python tests/benchmarks/kernels.py

prints milliseconds of processor time of one call, one thread, float32: medians of seven blocks. Run it again for
another ONNX Runtime or another processor: `gqa.LONG`, `gqa.CHUNKS`, `grouped.SMALLEST` and `grouped.FITS` are read off.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import onnx_ir as ir
import onnxruntime

from isorun.export.passes import gqa
from isorun.export.passes.graph import MICROSOFT, Writer
from isorun.models.signature import Array

Feeds = dict[str, Array]


def milliseconds(model: ir.Model, feeds: Feeds, shared: dict[str, str] | None = None) -> float:
    """Processor time of a call; `shared` binds inputs as these outputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    binding = session.io_binding()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        if output.name in (shared or {}):
            binding.bind_ortvalue_output(output.name, values[(shared or {})[output.name]])
        else:
            binding.bind_output(output.name)
    session.run_with_iobinding(binding)
    times = []
    for _ in range(7):
        began, calls = time.process_time(), 0
        while calls == 0 or time.process_time() - began < 0.05:
            session.run_with_iobinding(binding)
            calls += 1
        times.append((time.process_time() - began) / calls * 1e3)
    return median(times)


def one_node(operator: str, feeds: Feeds, outputs: int = 1, domain: str = "", **attributes: object) -> ir.Model:
    """A model of one node, whose inputs are named by their place: "0", "1", …"""
    inputs = {name: ir.val(name, ir.DataType.from_numpy(array.dtype), array.shape) for name, array in feeds.items()}
    places = [inputs.get(str(i)) for i in range(1 + max(int(name) for name in feeds))]
    graph = ir.Graph(list(inputs.values()), [], nodes=[], name=operator, opset_imports={"": 23, MICROSOFT: 1})
    node = Writer(graph, None, "y").node(operator, places, dict(attributes), outputs, domain)
    graph.outputs.extend(node.outputs)
    return ir.Model(graph, ir_version=10)


def prefill(heads: int, groups: int, head: int, n: int) -> dict[str, float]:
    """A causal prompt of n tokens: the standard operator with its mask, and the kernels of the passes without one."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, n, width * head), np.float32) for width in (heads, groups, groups))
    mask = np.tril(np.ones((n, n), np.bool_))
    counts = {"num_heads": heads, "kv_num_heads": groups}
    standard = {"q_num_heads": heads, "kv_num_heads": groups}
    parts = np.array_split(np.arange(n), gqa.CHUNKS)
    chunks = 0.0
    for part in parts:  # each chunk with the keys before it as its past
        start, tokens = int(part[0]), len(part)
        past = rng.standard_normal((1, groups, start, head), np.float32)
        feeds = {
            "0": q[:, part],
            "1": k[:, part],
            "2": v[:, part],
            "3": past,
            "4": past.copy(),
            **_lengths(start + tokens),
        }
        chunks += milliseconds(one_node("GroupQueryAttention", feeds, 3, MICROSOFT, **counts), feeds)
    whole = {"0": q, "1": k, "2": v, **_lengths(n)}
    masked = {"0": q, "1": k, "2": v, "3": mask}
    found = {
        "Attention": milliseconds(one_node("Attention", masked, **standard), masked),
        "GroupQueryAttention": milliseconds(one_node("GroupQueryAttention", whole, 1, MICROSOFT, **counts), whole),
        f"… in {gqa.CHUNKS} chunks": chunks,
    }
    if heads == groups:
        bare = {"0": q, "1": k, "2": v}
        found["MultiHeadAttention, not causal"] = milliseconds(
            one_node("MultiHeadAttention", bare, 1, MICROSOFT, num_heads=heads), bare
        )
    return found


def step(heads: int, groups: int, head: int, past: int) -> dict[str, float]:
    """One token after a past, in place: the kernel, and a row written with the groups as rows."""
    rng = np.random.default_rng(0)
    cache = {name: rng.standard_normal((1, groups, past + 1, head), np.float32) for name in ("3", "4")}
    q, k = (rng.standard_normal((1, 1, width * head), np.float32) for width in (heads, groups))
    shared = {"y.1": "3", "y.2": "4"}

    feeds = {"0": q, "1": k, "2": k.copy(), **cache, **_lengths(past + 1)}
    counts = {"num_heads": heads, "kv_num_heads": groups}
    kernel = milliseconds(one_node("GroupQueryAttention", feeds, 3, MICROSOFT, **counts), feeds, shared)
    rows = {"0": q.reshape(1, groups, heads // groups, head), "1": cache["3"], "2": cache["4"]}
    rows["3"] = np.ones((heads // groups, past + 1), np.bool_)
    place = np.full((1, groups, 1, head), past, np.int32)
    write = {"0": cache["3"], "1": place, "2": k.reshape(1, groups, 1, head)}
    written = milliseconds(one_node("ScatterElements", write, axis=2), write, {"y": "0"})
    return {
        "kernel": kernel,
        "a row written, groups as rows": 2 * written + milliseconds(one_node("Attention", rows), rows),
    }


def _lengths(total: int) -> Feeds:
    return {"5": np.array([total - 1], np.int32), "6": np.array([total], np.int32)}


def main() -> None:
    print(f"onnxruntime {onnxruntime.__version__}")
    for n in (128, 512, 1024, 2048, 4096):
        for heads, groups in ((8, 2), (8, 8)):
            print(f"{heads} heads, {groups} of keys, 32 wide, prompt {n}:", _shown(prefill(heads, groups, 32, n)))
    for heads, groups, head in (
        (8, 8, 32),
        (8, 4, 32),
        (8, 2, 32),
        (16, 4, 64),
        (32, 32, 64),
        (32, 8, 64),
        (32, 8, 128),
    ):
        for past in (64, 512, 2048, 8000):
            shape = f"{heads} heads, {groups} of keys, {head} wide, {groups * head * past} numbers"
            print(f"{shape}, step after {past}:", _shown(step(heads, groups, head, past)))


def _shown(times: dict[str, float]) -> str:
    return ", ".join(f"{name} {time:.3g}" for name, time in times.items())


if __name__ == "__main__":
    main()
