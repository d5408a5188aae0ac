"""The README tells the truth: its commands, its map, its table of models, its example."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from isorun.models.presets import PRESETS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(?:\w*)\n(.*?)```", README, re.DOTALL)


def test_ci_runs_exactly_the_test_command_of_the_readme() -> None:
    command = next(block.strip() for block in BLOCKS if "pytest" in block)
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_every_install_line_keeps_the_constraints() -> None:
    installs = [line for block in BLOCKS for line in block.splitlines() if "pip install" in line]
    assert len(installs) == 2
    assert all("-c constraints.txt" in line for line in installs)


def test_the_map_names_every_module_and_nothing_else() -> None:
    block = next(block for block in BLOCKS if "yardstick.py" in block)
    named = set(re.findall(r"\b(\w+)\.py\b", block)) | {"reference"}  # written reference*.py, with its operators
    folders = ("commands", "models", "export", "export/passes", "runtimes", "bench", "reports")
    tree = {path.stem for folder in folders for path in (ROOT / folder).glob("*.py")}
    operators = {name for name in tree if name.startswith("reference_")}
    assert named == (tree | {"cli", "listing", "terminal"}) - operators - {"__init__"}


def test_the_table_of_models_is_the_presets() -> None:
    rows = re.findall(r"^\| `([\w.-]+)` \| (\S+)", README, re.MULTILINE)
    assert dict(rows) == {name: config.topology for name, config in PRESETS.items()}


def test_the_commands_of_the_readme_exist() -> None:
    block = next(block for block in BLOCKS if block.startswith("isorun list"))
    for line in block.splitlines():
        command, options = line.split()[1], re.findall(r"--[a-z]+", line)
        shown = subprocess.run(
            [sys.executable, "-m", "isorun", command, "--help"], capture_output=True, text=True, check=True
        ).stdout
        assert all(option in shown for option in options), line


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = next(block for block in BLOCKS if block.startswith("from pathlib"))
    monkeypatch.chdir(tmp_path)
    exec(compile(example.replace('"small"', '"tiny"'), "README.md", "exec"), {})
    assert (tmp_path / "llama-step" / "model.onnx").is_file()
