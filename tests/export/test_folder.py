"""The folder of an export: whole or not at all, in the place of nothing but another export."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isorun.export.artifact import ArtifactError, ExportedModel
from isorun.export.folder import whole

from ..conftest import Exported


def _fill(artifact: ExportedModel, folder: Path, *, force: bool = False) -> None:
    with whole(folder, force=force) as part:
        for file in artifact.folder.iterdir():
            (part / file.name).write_bytes(file.read_bytes())


def test_another_export_is_replaced_by_force_alone(exported: Exported, tmp_path: Path) -> None:
    first, second, target = exported("lstm", "forward"), exported("lstm", "step"), tmp_path / "out"
    _fill(first, target)
    with pytest.raises(ArtifactError, match="it holds an export: --force replaces it"):
        _fill(second, target)
    assert ExportedModel.open(target).phase == "forward"
    _fill(second, target, force=True)
    assert ExportedModel.open(target).phase == "step"
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_what_is_no_export_is_never_removed(exported: Exported, tmp_path: Path) -> None:
    artifact, target = exported("lstm", "forward"), tmp_path / "out"
    _fill(artifact, target)
    (target / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match=r"notes\.txt is not of an export"):
        _fill(artifact, target, force=True)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ArtifactError, match="is a file"):
        _fill(artifact, tmp_path / "file", force=True)
    assert (target / "notes.txt").read_text() == (tmp_path / "file").read_text() == "mine"


def test_a_failure_leaves_the_old_export_and_no_trace(exported: Exported, tmp_path: Path) -> None:
    artifact, target = exported("lstm", "forward"), tmp_path / "out"
    _fill(artifact, target)

    def fail() -> None:
        with whole(target, force=True) as part:
            (part / "model.onnx").write_bytes(b"half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fail()
    assert ExportedModel.open(target).sha256 == artifact.sha256
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


KILLED = """
import sys, time
from pathlib import Path
from isorun.export.folder import whole
with whole(Path(sys.argv[1])) as part:
    (part / "model.onnx").write_bytes(b"half")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_a_kill_in_the_middle_leaves_nothing_under_the_final_name(exported: Exported, tmp_path: Path) -> None:
    target = tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(target)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    assert not target.exists()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not target.exists()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".out.isorun-part-")
    _fill(exported("lstm", "forward"), target)
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


FULL = """
import resource, sys
from pathlib import Path
from isorun.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sys.argv = ["isorun", "export", "lstm", "--size", "tiny", "-o", sys.argv[1], "--no-cache"]
main()
"""


def test_a_disk_that_fills_up_is_one_message_and_no_folder(tmp_path: Path) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "out")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2, (done.stderr, time.monotonic() - began)
    assert "Traceback" not in done.stderr
    assert "File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []
