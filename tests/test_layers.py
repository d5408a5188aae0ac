"""One direction of imports, and processes that stay free of what they must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("models", "export", "runtimes", "bench", "reports")


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Level and module of each import of a file, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""
        elif isinstance(node, ast.Import):
            yield from ((0, name.name) for name in node.names)


def _files() -> list[Path]:
    return [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_to_the_left(path: Path) -> None:
    parts = path.relative_to(ROOT).parts
    allowed = set(LAYERS[: LAYERS.index(parts[0]) + 1])
    for level, module in _imports(path):
        assert not (level == 0 and module.split(".")[0] == "isorun"), f"{path}: imports inside the package are relative"
        if level == len(parts):  # up to the root: the first part names a layer
            assert module.split(".")[0] in allowed, f"{path} imports {module}, which lies to its right"


def test_every_layer_is_seen_by_the_test() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {*LAYERS, "commands"}  # the commands lie above all layers


@pytest.mark.parametrize(
    ("code", "forbidden"),
    [
        ("import isorun", ("torch", "onnx", "onnxruntime", "pandas", "numpy")),
        ("import isorun.bench.records", ("torch", "onnx", "onnxruntime", "pandas", "numpy")),
        ("import isorun.reports.build, isorun.cli", ("torch", "onnx", "onnxruntime")),
        ("import isorun.bench.worker; from isorun.runtimes import all_runtimes; all_runtimes()", ("torch",)),
        ("from isorun.runtimes.reference import Float64Graph", ("torch", "onnxruntime")),
    ],
)
def test_a_process_loads_only_what_it_needs(code: str, forbidden: tuple[str, ...]) -> None:
    check = f"import sys; {code}; print([name for name in {forbidden!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
