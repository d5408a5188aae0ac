"""How much faster the graphs of `--for ort-cpu` are: the rows of docs/fast.md.

    python tests/benchmarks/fast.py FOLDER [prefill-2048 prefill-8192 window decode bert-128 bert-512 int8 zoo proofs …]

exports into FOLDER what is not there yet, and prints a Markdown row for each name (all but the last two by default):
the ratio of interleaved blocks with its 95 % interval over five fleets of new processes, one thread, float32 unless
said. The machine should do nothing else. `zoo` and `proofs` (zoo.py) keep their rows in FOLDER and go on where they
were stopped; `zoo` begins no new case after 30 minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnxruntime
import theirs
import torch
import zoo

from isorun.bench.complexity import slope
from isorun.bench.contest import Entry, Result, contest
from isorun.bench.proof import prover
from isorun.export.artifact import ExportedModel
from isorun.export.exporter import export
from isorun.export.source import Source
from isorun.models.attention import Attention, distances
from isorun.models.phases import PhaseModule, phase_module
from isorun.models.presets import PRESETS
from isorun.models.window import Window
from isorun.runtimes.ort import RUNTIMES, OrtSession, configure

DEFAULT_OPSET = 20  # of torch.onnx.export in torch 2.13, when none is named
WINDOW = 256
PLAIN: dict[str, str] = {}  # no session options: ONNX Runtime's own "all"


class MaskedWindow(Attention):
    """Full attention under the mask of a window, as transformers computes Mistral."""

    def plan(self, mask: torch.Tensor, tokens: int, bias: torch.Tensor | None = None) -> object:
        """The causal mask of the parent, without keys that lie WINDOW or more before the query."""
        return super().plan(mask, tokens, bias) & (distances(mask, tokens) < WINDOW)


def windowed() -> PhaseModule:
    """Mistral at `small` with a window of 256, in blocks."""
    config = PRESETS["mistral-7b"].at("small")
    mixer = config.mixers[0]
    assert isinstance(mixer, Window)
    return phase_module(replace(config, mixer=replace(mixer, window=WINDOW)), "forward")


def masked() -> PhaseModule:
    """The same weights, with masked attention."""
    module = windowed()
    for layer in module.model.stack.layers:
        layer.mixer.__class__ = MaskedWindow
    return module


class Exports:
    """Exports in a folder, made when they are first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(
        self,
        name: str,
        phase: str = "forward",
        *,
        opset: int = 23,
        target: str = "portable",
        dtype: str = "fp32",
        size: str = "small",
    ) -> Path:
        folder = self.root / "-".join((name.replace(":", "."), phase, size, str(opset), target, dtype))
        if not folder.exists():
            source = Source("module", name) if ":" in name else Source("preset", name, size)
            export(source, phase, folder, opset=opset, target=target, dtype=dtype, prove=prover(source.weight_bytes()))
        return folder


def compared(
    what: str, base: Entry, fast: Entry, sizes: dict[str, int], budget_s: float = 30.0
) -> tuple[Result, Result]:
    """Print one row; the results of both."""
    found = contest({"base": base, "fast": fast}, sizes, budget_s=budget_s)
    one, other = found["base"], found["fast"]
    if isinstance(one, str) or isinstance(other, str):
        sys.exit(f"{what}: {one if isinstance(one, str) else other}")
    ratio = other.over(one)
    memory = f"{one.working_bytes / 2**20:.0f} → {other.working_bytes / 2**20:.0f} MiB"
    times = f"{one.seconds * 1e3:.4g} → {other.seconds * 1e3:.4g} ms"
    interval = f"{ratio.interval.low:.2f}-{ratio.interval.high:.2f}"
    print(f"| {what} | {ratio.ratio:.2f}× ({interval}) | {times} | {memory} |", flush=True)
    return one, other


def prefill(n: int) -> Callable[[Exports], None]:
    def row(exports: Exports) -> None:
        base, fast = exports("llama3-8b", opset=DEFAULT_OPSET), exports("llama3-8b", target="ort-cpu")
        compared(f"prefill n={n}, llama3-8b", Entry(base), Entry(fast), {"batch": 1, "sequence": n}, 30 + n / 100)

    return row


def own(n: int, *, dynamo: bool) -> Callable[[Exports], None]:
    """A file that torch.onnx.export made of transformers' Llama, against itself rewritten."""

    def row(exports: Exports) -> None:
        base, fast = theirs.exported(exports.root, dynamo=dynamo)
        how = "torch.export" if dynamo else "TorchScript"
        what = f"a file of transformers' Llama by {how}, n={n}"
        compared(what, Entry(base), Entry(fast), {"batch": 1, "sequence": n})

    return row


def window(exports: Exports) -> None:
    """Blocks against the mask, and how the blocks grow with n."""
    module = "isorun_benchmarks_fast"
    sys.modules[module] = sys.modules[__name__]
    base, fast = exports(f"{module}:masked", opset=DEFAULT_OPSET), exports(f"{module}:windowed", target="ort-cpu")
    compared(f"window {WINDOW}, n=8192", Entry(base), Entry(fast), {"batch": 1, "sequence": 8192}, 90)
    lengths, times = (1024, 2048, 4096, 8192), []
    for n in lengths:
        found = contest({"fast": Entry(fast)}, {"batch": 1, "sequence": n}, budget_s=10)["fast"]
        assert isinstance(found, Result)
        times.append(found.seconds)
    print(f"| window {WINDOW}, n={lengths[0]}…{lengths[-1]} | exponent {slope(lengths, times):.2f} | | |")


def decode(exports: Exports) -> None:
    """A step after 8000 tokens, and what reading weights and cache once takes."""
    base, fast = exports("llama3-8b", "step", opset=18), exports("llama3-8b", "step", target="ort-cpu")
    sizes = {"batch": 1, "sequence": 1, "past": 8000}
    _, step = compared("decode at past 8000, in-place cache", Entry(base), Entry(fast), sizes)
    artifact = ExportedModel.open(fast)
    cache = sum(
        4 * math.prod(spec.resolve(sizes)) for spec in artifact.signature().outputs if spec.name.startswith("present")
    )
    # Of the embedding one row is read; its table is that of the head where they are tied.
    config = PRESETS["llama3-8b"].at("small")
    weights = artifact.sizes["source_bytes"] - (0 if config.tie_embeddings else 4 * config.vocab * config.dim)
    floor = (weights + cache) / read_bandwidth()
    once = f"over reading {(weights + cache) / 1e6:.0f} MB once"
    print(f"| the same, {once} | {step.seconds / floor:.2f}× | {floor * 1e3:.3g} ms | |")
    parts = ", ".join(f"{kind} {spent:.2g}" for kind, spent in operators(fast, sizes).most_common(6))
    print(f"| the same by operator | | {parts} ms | |")


def read_bandwidth() -> float:
    """Bytes per second that one core reads: a sum over 256 MiB, the best of 20."""
    torch.set_num_threads(1)
    data = torch.ones(2**26)
    times = []
    for _ in range(20):
        began = time.perf_counter()
        data.sum()
        times.append(time.perf_counter() - began)
    return data.numel() * 4 / min(times)


def bert(n: int) -> Callable[[Exports], None]:
    def row(exports: Exports) -> None:
        base, fast = exports("bert-base"), exports("bert-base", target="ort-cpu")
        compared(f"BERT n={n}", Entry(base, session=PLAIN), Entry(fast), {"batch": 1, "sequence": n})

    return row


def int8(exports: Exports) -> None:
    """Dynamic int8 against float32, with the drift that was measured at export, and what is no product in either."""
    base, fast = exports("llama3-8b", target="ort-cpu"), exports("llama3-8b", target="ort-cpu", dtype="int8")
    drift = ExportedModel.open(fast).errors.get("logits", math.nan)
    sizes = {"batch": 1, "sequence": 128}
    compared(f"int8 prefill n=128, drift {drift:.2g}", Entry(base), Entry(fast), sizes)
    single, eight = operators(base, sizes), operators(fast, sizes)
    one, other = sum(single[kind] for kind in PRODUCTS), sum(eight[kind] for kind in PRODUCTS)
    rest = f"{single.total() - one:.3g} → {eight.total() - other:.3g} ms of other operators"
    most = f"without any product {single.total() / (single.total() - one):.1f}×"
    print(f"| the same by operator | products {one / other:.2f}×, {most} | {one:.3g} → {other:.3g} ms; {rest} | |")


PRODUCTS = ("MatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "DynamicQuantizeLinear")


def operators(folder: Path, sizes: dict[str, int], calls: int = 30) -> Counter[str]:
    """Milliseconds of one call by operator; of many calls the least for each, which nothing else took part in."""
    artifact = ExportedModel.open(folder)
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.intra_op_num_threads = True, 1
    disabled = configure(options, artifact.session, onnxruntime)
    profiled = onnxruntime.InferenceSession(
        str(artifact.model_path), options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
    )
    session = OrtSession(profiled, RUNTIMES[0], artifact, 1)
    staged = session.stage(artifact.signature().feeds(sizes))
    for _ in range(calls):
        session.run(staged)
    file = Path(profiled.end_profiling())
    events = sorted(json.loads(file.read_text()), key=lambda event: event["ts"])
    file.unlink()
    runs: list[Counter[str]] = []
    for event in events:
        if event["name"] == "model_run":
            runs.append(Counter())
        elif event["name"].endswith("_kernel_time") and event["args"]["op_name"] != "If":  # its branches are there
            runs[-1][event["args"]["op_name"]] += event["dur"]
    return Counter({kind: min(run[kind] for run in runs) / 1e3 for kind in runs[0]})


ROWS: dict[str, Callable[[Exports], None]] = {
    "prefill-2048": prefill(2048),
    "prefill-8192": prefill(8192),
    "window": window,
    "decode": decode,
    "bert-128": bert(128),
    "bert-512": bert(512),
    "int8": int8,
    "own-2048": own(2048, dynamo=True),
    "own-script-2048": own(2048, dynamo=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, "zoo", "proofs", []])
    parser.add_argument("--models", default="", help="zoo and proofs: these presets alone, separated by commas")
    parser.add_argument("--minutes", type=float, default=30.0, help="zoo: begin no further case after so long")
    parser.add_argument("--opset", type=int, default=23, help="proofs: of the exports, which passes may raise")
    given = parser.parse_args()
    exports = Exports(given.folder)
    given.folder.mkdir(parents=True, exist_ok=True)
    models = [name for name in given.models.split(",") if name]
    for name in given.rows or ROWS:
        if name == "zoo":
            zoo.zoo(given.folder, exports, models, given.minutes)
        elif name == "proofs":
            zoo.proofs(given.folder, exports, models, given.opset)
        else:
            ROWS[name](exports)


if __name__ == "__main__":
    main()
