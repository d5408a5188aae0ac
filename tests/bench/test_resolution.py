"""What a run can tell apart: two identical runtimes are seldom called different, and 3 % is seen.

The rounds are those of a run within its default time for one length, with its own rule to stop; times are simulated.
`noise.json` holds block medians of two identical ONNX Runtime processes that alternated on a real machine, made by
`python tests/benchmarks/resolution.py`. What processes differ by is not in these times: see test_twins.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isorun.bench import measure
from isorun.bench.measure import Bench, Trial
from isorun.bench.plan import MOST_S
from isorun.bench.timing import compare

RECORDED = Path(__file__).with_name("noise.json")
CALL_NS = 2e6
RUN = 3  # blocks that follow each other share what disturbed them
Noise = Callable[[np.random.Generator], Callable[[], tuple[float, float]]]


def modelled(rng: np.random.Generator) -> Callable[[], tuple[float, float]]:
    """1 % a block, a drift of 1 % that both share, and an interruption of up to 20 % in one block of twenty."""

    def pair() -> tuple[float, float]:
        drift = np.exp(0.01 * rng.standard_normal())
        first, second = np.exp(0.01 * rng.standard_normal(2)) * (1 + 0.2 * (rng.random(2) < 0.05) * rng.random(2))
        return drift * first, drift * second

    return pair


def recorded(rng: np.random.Generator) -> Callable[[], tuple[float, float]]:
    """Neighbouring pairs of recorded blocks, `RUN` at a time: a stationary bootstrap (Politis and Romano 1994)."""
    content = [np.array(both) / np.median(both, axis=1, keepdims=True) for both in json.loads(RECORDED.read_text())]

    def pairs() -> Iterator[tuple[float, float]]:
        while True:
            both = content[rng.integers(len(content))]
            start = rng.integers(both.shape[1])
            for index in range(start, min(start + RUN, both.shape[1])):
                yield float(both[0, index]), float(both[1, index])

    return pairs().__next__


class FakeRound:
    """Answers blocks in the order in which they are asked for, a pair a round, on a clock of its own."""

    def __init__(self, draw: Callable[[], tuple[float, float]], slowed: float) -> None:
        self.draw = draw
        self.slowed = slowed
        self.now_s = 0.0
        self.pending: dict[str, float] = {}

    def ask(self, name: str, trial: Trial, op: str, *, seconds: float) -> dict[str, Any]:
        if name not in self.pending:
            first, second = self.draw()
            self.pending = {"base": first, "other": second * self.slowed}
        self.now_s += seconds
        return {"ns": [int(CALL_NS * self.pending.pop(name))] * 5}


def words(monkeypatch: pytest.MonkeyPatch, noise: Noise, slowed: float, runs: int) -> list[str]:
    found = []
    for seed in range(runs):
        fake = FakeRound(noise(np.random.default_rng(seed)), slowed)
        monkeypatch.setattr(measure.time, "monotonic", lambda fake=fake: fake.now_s)
        bench = Bench(Path("model"), ("base", "other"), 1, Path("logs"))
        monkeypatch.setattr(bench, "_ask", fake.ask)
        trials = {name: Trial() for name in ("base", "other")}
        bench._time(trials, MOST_S)
        base, other = ([float(np.median(block)) for block in trials[name].blocks] for name in ("base", "other"))
        found.append(compare(base, other).word)
    return found


@pytest.mark.parametrize("noise", [modelled, recorded])
def test_two_identical_runtimes_are_seldom_called_different(monkeypatch: pytest.MonkeyPatch, noise: Noise) -> None:
    found = words(monkeypatch, noise, 1.0, 200)
    assert found.count("faster") + found.count("slower") <= 0.05 * 200


@pytest.mark.parametrize("noise", [modelled, recorded])
def test_a_runtime_slowed_by_three_percent_is_called_slower(monkeypatch: pytest.MonkeyPatch, noise: Noise) -> None:
    found = words(monkeypatch, noise, 1.03, 200)
    assert found.count("slower") >= 0.9 * 200
    assert found.count("faster") == 0
