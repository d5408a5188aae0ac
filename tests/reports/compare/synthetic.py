"""Pairs of runs with known changes: blocks that scatter within a run, cases that scatter between runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isorun.bench.records import Case, Measurement, OutputError, Run, Verdict, to_line
from isorun.bench.runfolder import write_header
from isorun.runtimes.base import Placement

RUNTIMES = ("torch", "ort-cpu")
HEADER: dict[str, Any] = {
    "name": "made up",
    "isorun": "0.1.0",
    "created": "2026-03-14T09:26:53+00:00",
    "finished": "2026-03-14T09:36:53+00:00",
    "environment": {
        "processor": "AMD EPYC 9R14",
        "cores": 2,
        "threads": 2,
        "os": "Linux 6.8",
        "versions": {"torch": "2.13.0", "onnxruntime": "1.32.0", "onnx": "1.23.2"},
        "matmul_gflops": {"torch": 100.0, "ort-cpu": 200.0},
    },
}
Factor = Callable[[Case], float]


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms: of a block within a run, and of a case between two runs."""

    within: float = 0.01
    between: float = 0.005
    blocks: tuple[int, int] = (5, 9)


def unchanged(_: Case) -> float:
    """A factor of 1 for every case."""
    return 1.0


def runtime(name: str, factor: float) -> Factor:
    """A factor for the cases of one runtime."""
    return lambda case: factor if case.runtime == name else 1.0


def case(model: str = "m0", runtime: str = "torch", n: int = 64, phase: str = "forward") -> Case:
    seq, past = (1, n) if phase == "step" else (n, 0)
    return Case(model=model, size="small", phase=phase, dtype="fp32", runtime=runtime, batch=1, seq=seq, past=past)


def cases(models: int = 10, runtimes: tuple[str, ...] = RUNTIMES) -> list[Case]:
    """Two lengths a model, decode steps among them."""
    return [
        case(f"m{i}", name, n, "step" if i % 3 == 0 else "forward")
        for i in range(models)
        for n in (64, 256)
        for name in runtimes
    ]


def measured(which: Case, medians: list[float], error: float = 1.0) -> Measurement:
    """A case with the given block medians in nanoseconds; `error` is in units of torch's own rounding."""
    return Measurement(
        case=which,
        status="ok",
        blocks_ns=tuple((round(value),) for value in medians),
        errors=(OutputError(name="logits", rms=error * 1e-7, max_abs=1e-6, scale=1.0, ruler_rms=1e-7),),
        placement=Placement(provider=which.runtime, nodes={}, precision="fp32", threads=2),
    )


def run(
    seed: int,
    factor: Factor = unchanged,
    *,
    which: list[Case] | None = None,
    noise: Noise = Noise(),
    header: dict[str, Any] | None = None,
    folder: str = "run",
) -> Run:
    """One run of all cases: a case takes 1 ms times its factor, times the noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for one in which or cases():
        level = 1e6 * factor(one) * np.exp(rng.normal(0, noise.between / np.sqrt(2)))
        count = rng.integers(*noise.blocks, endpoint=True)
        rows.append(measured(one, list(level * np.exp(rng.normal(0, noise.within, count)))))
    verdict = Verdict(
        model="m0", size="small", phase="forward", dtype="fp32", check="same function",
        status="pass", distance=1e-13, limit=1e-9, detail="agree",
    )  # fmt: skip
    return Run(folder=Path(folder), header=header or HEADER, measurements=tuple(rows), verdicts=(verdict,))


def write(chosen: Run, folder: Path) -> Path:
    """The run as a folder."""
    folder.mkdir(parents=True)
    write_header(folder, chosen.header)
    lines = [to_line(record) for record in (*chosen.verdicts, *chosen.measurements)]
    (folder / "records.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def benchmark_file(path: Path, medians: dict[str, list[float]], **more: Any) -> Path:
    """JSON as `pytest --benchmark-json` writes it with `--benchmark-save-data`; seconds by test."""
    benchmarks = [
        {"name": name, "fullname": name, "extra_info": {}, "stats": {"data": data, "median": float(np.median(data))}}
        for name, data in medians.items()
    ]
    machine = {"cpu": {"brand_raw": "AMD EPYC 9R14", "count": 2}, "system": "Linux", "python_version": "3.11.9"}
    content = {"machine_info": machine, "benchmarks": benchmarks, "datetime": "2026-03-14T09:26:53+00:00", **more}
    path.write_text(json.dumps(content))
    return path
