"""`pytest tests/benchmarks --benchmark-only` times; without it each benchmark runs once, as a test."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The suite's own option switches benchmarks off, and the plugin refuses that together with `--benchmark-only`."""
    if config.getoption("benchmark_only", default=False):
        config.option.benchmark_disable = False
