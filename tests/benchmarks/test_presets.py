"""Presets on the runtimes of this machine, timed with pytest-benchmark's fixture; outputs are checked first.

    pytest tests/benchmarks --benchmark-only --benchmark-json times.json
    isorun report times.json

At `small`; in the suite each case runs once, at `tiny`.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from isorun.bench import truth
from isorun.bench.interchange import CASE, ERRORS
from isorun.bench.measure import wrong
from isorun.bench.records import Case
from isorun.bench.subject import compare
from isorun.bench.suite import sizes
from isorun.export.artifact import ExportedModel
from isorun.export.exporter import export
from isorun.export.source import Source
from isorun.models.phases import phases
from isorun.models.presets import PRESETS
from isorun.runtimes import all_runtimes

from ..conftest import SIX, Exported

LENGTH = {"forward": 128, "step": 512}
SHORT = 64  # within the tables of positions at `tiny`
GRAPHS = [(name, phase) for name in SIX for phase in LENGTH if phase in phases(PRESETS[name])]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    root: Path = tmp_path_factory.mktemp("small")

    @cache
    def get(name: str, phase: str) -> ExportedModel:
        return export(Source("preset", name, "small"), phase, root / f"{name}-{phase}")

    return get


@pytest.mark.parametrize("runtime", ["torch", "ort-cpu"])
@pytest.mark.parametrize(("name", "phase"), GRAPHS)
def test_preset(
    benchmark: BenchmarkFixture,
    exported: Exported,
    small: Exported,
    tmp_path: Path,
    name: str,
    phase: str,
    runtime: str,
) -> None:
    artifact = (exported if benchmark.disabled else small)(name, phase)
    n = SHORT if benchmark.disabled else LENGTH[phase]
    seq, past = (1, n) if phase == "step" else (n, 0)
    size = artifact.source.size
    case = Case(model=name, size=size, phase=phase, dtype="fp32", runtime=runtime, batch=1, seq=seq, past=past)
    truth.write(str(artifact.folder), sizes(case), str(tmp_path / "truth.npz"))
    session = all_runtimes()[runtime].prepare(artifact, threads=1)
    staged = session.stage(artifact.signature().feeds(sizes(case)))
    errors = compare(session.fetch(session.run(staged)), str(tmp_path / "truth.npz"))
    assert wrong(errors) is None
    checked = [asdict(error) for error in errors]
    benchmark.extra_info.update({CASE: asdict(case), ERRORS: checked, "what": f"{name} {phase} on {runtime}", "n": n})
    benchmark(session.run, staged)
