"""A run of 5280 records: eleven models in two phases on six runtimes at forty lengths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from isorun.bench.records import Measurement, Run, Verdict

from ..fakes import HEADER, fake_case, fake_errors, fake_run

MODELS, LENGTHS = 11, tuple(round(64 * 1.18**step) for step in range(40))
SPEEDS = {"torch": 1.0, "ort-cpu": 1.4, "openvino": 1.7, "torch-cuda": 9.0, "ort-cuda": 11.0, "tensorrt": 14.0}
FORWARD, STEP = (9e5, 2e4, 12.0), (1.1e6, 1.9e3, 0.0)


def large_run() -> Run:
    """Times follow two known laws; every graph is faithful and every output right."""
    verdicts = tuple(
        Verdict(model=f"model-{model}", size="small", phase=phase, dtype="fp32", check="same function", status="pass",
                distance=2e-14, limit=1e-9, detail="graph and source agree in float64")
        for model in range(MODELS) for phase in ("forward", "step")
    )  # fmt: skip
    small = fake_run()
    return Run(
        folder=small.folder, header={"schema": 1, **HEADER}, measurements=tuple(_measurements()), verdicts=verdicts
    )


def _measurements() -> Iterator[Measurement]:
    rng = np.random.default_rng(0)
    for model in range(MODELS):
        for phase, law in (("forward", FORWARD), ("step", STEP)):
            for n in LENGTHS:
                drift = rng.normal(1, 0.01, 9)
                for runtime, speed in SPEEDS.items():
                    work = law[0] + law[1] * n + law[2] * n * n
                    ns = work / speed * drift[:, None] * rng.normal(1, 0.02, (9, 7))
                    yield Measurement(
                        case=fake_case(model=f"model-{model}", phase=phase, runtime=runtime, n=n),
                        status="ok",
                        blocks_ns=tuple(tuple(int(value) for value in block) for block in ns),
                        prepare_s=0.8,
                        peak_bytes=int(1.1e9) + 4096 * n,
                        flops=int(50 * work),
                        errors=fake_errors(phase, runtime, float(rng.uniform(0.9, 1.4))),
                        stopped="budget",
                    )
