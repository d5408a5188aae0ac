"""For users' own tests: `assert_same(model, …)`, also as a pytest fixture of that name, which an install makes known.

def test_my_export(assert_same):
    assert_same("model.onnx", reference="package.module:factory")
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def assert_same(
    model: str | Path,
    *,
    reference: str | None = None,
    inputs: str | Path | None = None,
    expected: str | Path | None = None,
    runtimes: list[str] | None = None,
) -> None:
    """Fail unless `isorun validate` passes the model; the arguments are those of `run.validate`.

    Raises:
        AssertionError: a difference, or a question that could not be put; the message is the table of findings.
    """
    from .run import validate

    paths = {"inputs": Path(inputs) if inputs else None, "expected": Path(expected) if expected else None}
    report = validate(Path(model), reference=reference, runtimes=runtimes, **paths)
    if report.verdict != "pass":
        raise AssertionError("\n".join(report.lines()))


@pytest.fixture(name="assert_same")
def assert_same_fixture() -> Callable[..., None]:
    """The function `assert_same`."""
    return assert_same
