"""Graphs for ONNX Runtime's CPU, of the presets that are exported anyway."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import onnx_ir as ir
import pytest

from isorun.export import passes
from isorun.export.artifact import ExportedModel

Exported = Callable[[str, str], ExportedModel]
Fast = Callable[[str, str], tuple[ir.Model, list[str]]]


@pytest.fixture(scope="session")
def fast(exported: Exported) -> Fast:
    """`fast(preset, phase)`: the graph for ONNX Runtime's CPU, and the notes, without a proof."""

    @cache
    def get(name: str, phase: str) -> tuple[ir.Model, list[str]]:
        model = ir.load(exported(name, phase).model_path)
        return model, passes.apply(model, "ort-cpu")

    return get
