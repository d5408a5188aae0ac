"""The tutorials tell the truth: their commands are run, in order, as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
TUTORIALS = ("run", "compare", "validate")


@pytest.mark.parametrize("name", TUTORIALS)
def test_the_commands_of_a_tutorial_run(name: str, tmp_path: Path) -> None:
    text = (DOCS / f"{name}.md").read_text()
    for file, source in zip(re.findall(r"Save this as `(\S+)`", text), _blocks(text, "python"), strict=True):
        (tmp_path / file).write_text(source)
    script = "\n".join(_blocks(text, "sh"))
    assert script.count("isorun ") >= 3
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=_environment(tmp_path / "bin"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _DONE[name](tmp_path, done.stdout)


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def _environment(folder: Path) -> dict[str, str]:
    """The commands `isorun` and `python` are those of this interpreter."""
    folder.mkdir()
    for command, arguments in (("isorun", "-P -m isorun"), ("python", "")):
        file = folder / command
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        file.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


def _ran(folder: Path, said: str) -> None:
    assert "report.html\nreport.md\nrun.json" in said
    assert {path.name.split("-")[0] for path in (folder / "charts").glob("*.png")} == {"scaling", "decode", "memory"}
    assert "| gpt2 |" in (folder / "support.md").read_text()


def _compared(folder: Path, said: str) -> None:
    assert (folder / "comment.md").is_file()
    assert (folder / "comparison.html").is_file()


def _validated(folder: Path, said: str) -> None:
    assert "pass: tagger.onnx" in said
    assert said.rstrip().endswith("not the same function")


_DONE = {"run": _ran, "compare": _compared, "validate": _validated}


def test_every_page_of_the_docs_is_linked_from_the_readme() -> None:
    readme = (DOCS.parent / "README.md").read_text()
    assert [path.name for path in DOCS.glob("*.md") if f"docs/{path.name}" not in readme] == []
