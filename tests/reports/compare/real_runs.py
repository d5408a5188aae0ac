"""`isorun compare` on real runs: python tests/reports/compare/real_runs.py FOLDER [RUNS] [OPTIONS OF isorun bench]

Measures the same code several times (five, unless told), or takes the runs that the folder already has, and compares
every two of them both ways: as they are, where any call of a change is a false one, and with one runtime of the second
5 % slower, which should be called. A run against itself must be the same throughout.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path

from isorun.bench.records import Measurement, Run
from isorun.bench.runfolder import read_run
from isorun.reports.compare.comparison import Comparison, compare
from isorun.reports.compare.words import change

SLOWED, FACTOR, RUNS = "ort-cpu", 1.05, 5
OPTIONS = ("--models", "gpt2,llama3-8b,bert-base,mistral-7b,lstm", "--seq", "64:512:2x")


def main(folder: Path, count: int, options: list[str]) -> int:
    """Exit status 1 where a run differs from itself."""
    folder.mkdir(parents=True, exist_ok=True)
    while len(list(folder.glob("isorun-runs/*/"))) < count:
        subprocess.run([sys.executable, "-P", "-m", "isorun", "bench", *options], cwd=folder, check=True)
    runs = [read_run(path) for path in sorted(folder.glob("isorun-runs/*/"))]
    pairs = list(permutations(runs, 2))
    alike = [compare([base, head]) for base, head in pairs]
    more = [compare([base, slowed(head)]) for base, head in pairs]
    for (base, head), one, other in zip(pairs, alike, more, strict=True):
        said = f"{base.folder.name[-6:]} → {head.folder.name[-6:]}: {told(one)}; slowed: {told(other)}"
        sys.stdout.write(f"{said}\n")
    itself = [compare([run, run]) for run in runs]
    sys.stdout.write(
        f"called a regression: a run against itself {regressed(itself)}, the same code {regressed(alike)}, "
        f"{SLOWED} × {FACTOR} {regressed(more)}\n"
    )
    return int(any(found.word != "same" for one in itself for found in one.changes))


def slowed(run: Run) -> Run:
    """The same run with every sample of one runtime longer, those of its twin as well."""
    return replace(run, measurements=tuple(_longer(m) if m.case.runtime == SLOWED else m for m in run.measurements))


def _longer(m: Measurement) -> Measurement:
    blocks, twin = (
        tuple(tuple(round(ns * FACTOR) for ns in block) for block in taken) for taken in (m.blocks_ns, m.twin_ns)
    )
    return replace(m, blocks_ns=blocks, twin_ns=twin)


def told(found: Comparison) -> str:
    """What is said of each runtime."""
    whole = ", ".join(f"{one.runtime} {change(one)} {one.word}" for one in found.overall)
    return f"{whole}; {len(found.called('slower'))} cases slower, {len(found.called('faster'))} faster"


def regressed(found: list[Comparison]) -> str:
    """How many of them."""
    return f"{sum(one.regressed for one in found)} of {len(found)}"


if __name__ == "__main__":
    given = sys.argv[2:]
    several = int(given.pop(0)) if given and given[0].isdigit() else RUNS
    sys.exit(main(Path(sys.argv[1]), several, given or list(OPTIONS)))
