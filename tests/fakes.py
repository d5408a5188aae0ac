"""A made-up run with known laws: what `bench` leaves behind, without torch, without a clock, in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isorun.bench.records import Case, Measurement, OutputError, Run, Verdict, to_line
from isorun.bench.runfolder import read_run, write_header
from isorun.runtimes.base import Placement

FORWARD = (64, 128, 256, 512, 1024)
STEP = (128, 256, 512, 1024)
PROVIDERS = {"torch": "torch cpu", "ort-cpu": "CPUExecutionProvider"}
BLOCKS, CALLS, NOISE = 7, 5, 0.01
WINDOW = "the first value that differs is blocks.0.mixer (sliding window off by one)"
LEARNED = "n = 1024 exceeds the 512 learned positions"
MEMORY = "RuntimeFailure: session wanted 31 GiB, 24 GiB are there"


@dataclass(frozen=True)
class Law:
    """T(n) = c0 + c1·n + c2·n² in nanoseconds on torch, by phase, and how much faster ORT is."""

    forward: tuple[float, float, float]
    step: tuple[float, float, float] | None = None
    faster: float = 1.35


LAWS = {
    "transformer-base": Law((900e3, 21e3, 12.0)),
    "bert-base": Law((700e3, 18e3, 9.0), faster=1.22),
    "gpt2": Law((800e3, 24e3, 15.0), (1.1e6, 1.9e3, 0.0), faster=1.61),
    "llama3-8b": Law((1.2e6, 41e3, 22.0), (1.6e6, 1.2e3, 0.0), faster=1.02),
    "mistral-7b": Law((1.2e6, 44e3, 20.0), (1.6e6, 1.1e3, 0.0), faster=0.88),
    "lstm": Law((300e3, 61e3, 0.0), faster=2.4),
}
HEADER: dict[str, Any] = {
    "name": "small on one machine",
    "created": "2026-03-14T09:26:53+00:00",
    "finished": "2026-03-14T09:48:19+00:00",
    "elapsed_s": 1286.4,
    "isorun": "0.1.0",
    "suite": {
        "name": "small",
        "models": list(LAWS),
        "runtimes": ["torch", "ort-cpu"],
        "size": "small",
        "seq": list(FORWARD),
        "past": list(STEP),
        "batch": 1,
        "budget_s": 125.0,
    },
    "environment": {
        "processor": "AMD EPYC 9R14",
        "cores": 2,
        "memory_bytes": 24 * 2**30,
        "os": "Linux 6.8",
        "python": "3.11.9",
        "threads": 1,
        "versions": {"torch": "2.13.0", "onnx": "1.23.2", "onnxruntime": "1.32.0"},
        "matmul_gflops": {"torch": 107.2, "ort-cpu": 221.5, "ort-cuda": None},
        "runtimes_missing": {"ort-cuda": "no CUDA device; install the extra gpu on a machine that has one"},
    },
}


def fake_run(folder: Path | None = None, *, seed: int = 0) -> Run:
    """A realistic run; with a folder it is written there and read back, as a reader would."""
    header = {"schema": 1, **HEADER}
    measurements, verdicts = tuple(fake_measurements(seed)), tuple(fake_verdicts())
    if folder is None:
        return Run(folder=Path("run"), header=header, measurements=measurements, verdicts=verdicts)
    folder.mkdir(parents=True, exist_ok=True)
    write_header(folder, HEADER)
    lines = "".join(to_line(record) + "\n" for record in (*verdicts, *measurements))
    (folder / "records.jsonl").write_text(lines)
    return read_run(folder)


def fake_measurements(seed: int = 0) -> Iterator[Measurement]:
    """Both runtimes on every model and n: blocks that drift together by 1 %, calls that scatter by 3 %."""
    rng = np.random.default_rng(seed)
    for model, law in LAWS.items():
        for phase, terms, lengths in (("forward", law.forward, FORWARD), ("step", law.step, STEP)):
            for n in lengths if terms else ():
                drift = rng.normal(1, NOISE, BLOCKS)
                for runtime, speed in (("torch", 1.0), ("ort-cpu", law.faster)):
                    yield fake_measurement(model, phase, runtime, n, terms, speed, drift, rng)


def fake_measurement(
    model: str,
    phase: str,
    runtime: str,
    n: int,
    terms: tuple[float, float, float] | None,
    speed: float,
    drift: np.ndarray,
    rng: np.random.Generator,
) -> Measurement:
    """One case: skipped where positions end, failed where memory ends, wrong in one place, otherwise ok."""
    case = fake_case(model=model, phase=phase, runtime=runtime, n=n)
    if (model, n) == ("bert-base", 1024):
        return Measurement(case=case, status="skipped", reason=LEARNED)
    if (model, phase, runtime, n) == ("mistral-7b", "forward", "ort-cpu", 1024):
        return Measurement(case=case, status="failed", reason=MEMORY)
    c0, c1, c2 = terms or (0.0, 0.0, 0.0)
    calls = (c0 + c1 * n + c2 * n * n) / speed * drift[:, None] * rng.normal(1, 3 * NOISE, (BLOCKS, CALLS))
    wrong = (model, phase, runtime, n) == ("gpt2", "step", "ort-cpu", 1024)
    return Measurement(
        case=case,
        status="ok",
        blocks_ns=tuple(tuple(int(ns) for ns in block) for block in calls),
        prepare_s=0.8 if runtime == "torch" else 1.4,
        peak_bytes=int(1.1e9) + 4096 * n,
        flops=fake_flops(phase, terms, n),
        errors=fake_errors(phase, runtime, 3100.0 if wrong else float(rng.uniform(0.9, 1.4))),
        placement=Placement(provider=PROVIDERS[runtime], nodes={}, precision="fp32", threads=1),
        stopped="precision" if n < 1024 else "budget",
    )


def fake_case(*, model: str = "gpt2", phase: str = "forward", runtime: str = "torch", n: int = 64) -> Case:
    """A case with n on the axis that its phase has."""
    seq, past = (1, n) if phase == "step" else (n, 0)
    return Case(model=model, size="small", phase=phase, dtype="fp32", runtime=runtime, batch=1, seq=seq, past=past)


def fake_flops(phase: str, terms: tuple[float, float, float] | None, n: int) -> int:
    """The work behind a law at 50 GFLOP/s; what is constant per call is overhead in forward and weights in a step."""
    c0, c1, c2 = terms or (0.0, 0.0, 0.0)
    return int(50 * ((c0 if phase == "step" else 0) + c1 * n + c2 * n * n))


def fake_errors(phase: str, runtime: str, ratio: float) -> tuple[OutputError, ...]:
    """The errors of a case; torch is the ruler itself."""
    ratio = 1.0 if runtime == "torch" else ratio
    names = ["logits"] + (["present.0.key", "present.0.value"] if phase == "step" else [])
    return tuple(
        OutputError(name=name, rms=3e-7 * ratio / (1 + rank), max_abs=2e-6 * ratio, scale=1.3, ruler_rms=3e-7)
        for rank, name in enumerate(names)
    )


def fake_verdicts() -> Iterator[Verdict]:
    """One graph is another function, one check could not be made, the rest passes."""
    for model, law in LAWS.items():
        for phase in ("forward", "step") if law.step else ("forward",):
            wrong = (model, phase) == ("mistral-7b", "forward")
            yield Verdict(
                model=model,
                size="small",
                phase=phase,
                dtype="fp32",
                check="same function",
                status="fail" if wrong else "pass",
                distance=4.1e-3 if wrong else 2.4e-13,
                limit=1e-9,
                detail=WINDOW if wrong else "graph and source agree in float64",
            )
        yield Verdict(
            model=model,
            size="small",
            phase="forward",
            dtype="fp32",
            check="batch independence",
            status="error" if model == "lstm" else "pass",
            distance=None if model == "lstm" else 0.0,
            limit=None if model == "lstm" else 1e-6,
            detail="the graph has no free batch axis" if model == "lstm" else "a row does not depend on its batch",
        )
