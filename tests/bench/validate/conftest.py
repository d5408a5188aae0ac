"""`judge`: the whole of `validate`, in this process and on ONNX Runtime alone, so that a test takes milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from isorun.bench.validate import hints, run
from isorun.bench.validate.finding import Report

from . import graphs

Judge = Callable[..., Report]


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """`judge(model, inputs, expected, **options)`: models are protos or paths, inputs and expected dicts of arrays."""
    monkeypatch.setattr(run, "Evaluators", graphs.Local)
    monkeypatch.setattr(hints, "Evaluators", graphs.Local)
    monkeypatch.setattr(run, "Checker", graphs.LocalChecker)

    def call(model: onnx.ModelProto | Path, inputs: Any = None, expected: Any = None, **options: Any) -> Report:
        path = model if isinstance(model, Path) else graphs.save(model, tmp_path)
        files = {}
        for name, arrays in (("inputs", inputs), ("expected", expected)):
            if arrays is not None:
                files[name] = tmp_path / f"{name}.npz"
                np.savez(files[name], **arrays)
        return run.validate(path, **{"runtimes": ["ort-cpu"], **files, **options})

    return call
