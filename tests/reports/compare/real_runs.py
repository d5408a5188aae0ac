"""`isorun compare` on real runs: python tests/reports/compare/real_runs.py FOLDER [OPTIONS OF isorun bench]

Measures the same code twice, then compares the first run with itself, with the second, and the second with a copy of
itself in which one runtime takes 5 % longer. The first two must call no regression, the third must. Whether the first
run against that copy is called as well says how far the noise of this machine reaches from run to run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ISORUN = [sys.executable, "-P", "-m", "isorun"]
SLOWED, FACTOR = "ort-cpu", 1.05


def main(folder: Path, options: list[str]) -> int:
    """Exit status 1 where the same code was called a regression, or 5 % more was not."""
    folder.mkdir(parents=True)
    first, second = (measure(folder, options) for _ in range(2))
    slowed = slow(second, folder / "slowed")
    pairs = ((first, first), (first, second), (second, slowed), (first, slowed))
    itself, same, more, across = (compare(base, head) for base, head in pairs)
    sys.stdout.write(f"status: itself {itself}, same code {same}, {SLOWED} × {FACTOR}: {more}, across runs: {across}\n")
    return int((itself, same, more) != (0, 0, 1))


def measure(folder: Path, options: list[str]) -> Path:
    """One run; its path is that of the page in the last line."""
    done = subprocess.run([*ISORUN, "bench", *options], cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return folder / Path(done.stdout.strip().splitlines()[-1]).parent


def slow(run: Path, copy: Path) -> Path:
    """The same run with every sample of one runtime longer."""
    shutil.copytree(run, copy)
    lines = []
    for line in (run / "records.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "measurement" and record["case"]["runtime"] == SLOWED:
            record["blocks_ns"] = [[round(ns * FACTOR) for ns in block] for block in record["blocks_ns"]]
        lines.append(json.dumps(record) + "\n")
    (copy / "records.jsonl").write_text("".join(lines))
    return copy


def compare(base: Path, head: Path) -> int:
    """The exit status; what is said goes to the terminal."""
    return subprocess.run([*ISORUN, "compare", str(base), str(head)]).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:] or ["quick"]))
