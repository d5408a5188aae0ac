"""The long fuzzing, run by name: `pytest tests/bench/validate/campaign.py`. It takes a quarter of an hour on two cores.

200 000 mutations of valid files in this process, through integrity and structure, and 300 through the whole command.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

from isorun.bench.validate.checker import Checker

from . import fuzz
from .test_fuzz import outcome

IN_PROCESS, WHOLE, A_SEED = 200_000, 300, 1000


def test_in_process(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(fuzz.external()[1])
    path = tmp_path / "model.onnx"
    seen: Counter[str] = Counter()
    with Checker(timeout_s=20.0) as checker:
        for seed in range(IN_PROCESS // A_SEED):
            for content in islice(fuzz.mutants(100 + seed), A_SEED):
                path.write_bytes(content)
                seen[outcome(path, checker)] += 1
    sys.stderr.write(f"{json.dumps(seen)}\n")
    assert sum(seen.values()) == IN_PROCESS


def test_the_whole_command(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(fuzz.external()[1])
    path = tmp_path / "model.onnx"
    seen: Counter[int] = Counter()
    for content in islice(fuzz.mutants(7), WHOLE):
        path.write_bytes(content)
        command = [sys.executable, "-P", "-m", "isorun", "validate", str(path), "--runtime", "ort-cpu"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        seen[done.returncode] += 1
        assert done.returncode in (0, 1, 2), done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert "a fault in isorun itself" not in done.stdout + done.stderr
    sys.stderr.write(f"{json.dumps(seen)}\n")
    assert sum(seen.values()) == WHOLE
