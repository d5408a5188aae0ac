"""One layer of each sparse mixer on torch: does its time grow like n?

    export MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=17179869184
    pytest tests/benchmarks --benchmark-enable --benchmark-json times.json
    python tests/benchmarks/exponents.py times.json

The first line lets glibc keep its memory between calls. By default it gives blocks above 32 MiB back to the system
after every call, and each page is faulted in again. BigBird's gathered keys cross that size at n = 4096: the measured
exponent is 1.34 with the default, and 1.01 without that step. In the suite each case runs once. That the layers are
right is shown in tests/models.
"""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ..models.scaling import LENGTHS, call
from ..models.test_scaling import MIXERS, config

DIM = 256  # that of `small`: a layer so small that 1024 tokens fit into a cache and 2048 do not would bend the curve


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", MIXERS)
def test_sparse_layer(benchmark: BenchmarkFixture, name: str, n: int) -> None:
    preset, mixer = MIXERS[name]
    run = call(config(preset, mixer).scaled(dim=DIM, heads=8), causal=preset == "gpt2")
    benchmark.extra_info.update(what=name, n=n)
    assert tuple(benchmark(run, n).shape) == (1, n, DIM)
