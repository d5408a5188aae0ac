"""One layer of each sparse mixer on torch: does its time grow like n?

    pytest tests/benchmarks --benchmark-enable --benchmark-json times.json
    python tests/benchmarks/exponents.py times.json

In the suite each case runs once. That the layers are right is shown in tests/models.
"""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ..models.scaling import LENGTHS, call
from ..models.test_scaling import MIXERS, config


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", MIXERS)
def test_sparse_layer(benchmark: BenchmarkFixture, name: str, n: int) -> None:
    preset, mixer = MIXERS[name]
    run = call(config(preset, mixer), causal=preset == "gpt2")
    benchmark.extra_info.update(what=name, n=n)
    assert tuple(benchmark(run, n).shape) == (1, n, 24)
