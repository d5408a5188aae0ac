"""`isorun bench --base` with the same environment twice: python tests/reports/compare/beside_itself.py FOLDER [RUNS]

Each run is measured beside itself, once as it is, where any call of a change is a false one, and once with every call
of ONNX Runtime 5 % longer in this environment and not in the base, which should be called. Exit status 1 where one of
them comes out otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from isorun.bench.runfolder import read_run
from isorun.reports.compare.comparison import Comparison, compare
from isorun.tests.reports.compare.real_runs import OPTIONS, told

RUNS, FACTOR = 3, 1.05
# Python runs this at its start, where PYTHONPATH leads it there; the process of a base has no such variable.
SLOWER = f"""
import time
from isorun.runtimes import ort
quick = ort.OrtSession.run
def slower(session, staged):
    began = time.perf_counter()
    raw = quick(session, staged)
    end = began + {FACTOR} * (time.perf_counter() - began)
    while time.perf_counter() < end:
        pass
    return raw
ort.OrtSession.run = slower
"""


def main(folder: Path, count: int) -> int:
    """Exit status 1 where a change was called that is none, or none was called."""
    slow = folder / "slower"
    slow.mkdir(parents=True, exist_ok=True)
    (slow / "sitecustomize.py").write_text(SLOWER)
    alike, more = [], []
    for _ in range(count):
        alike.append(measure(folder, {}))
        more.append(measure(folder, {"PYTHONPATH": str(slow.absolute())}))
    called = [sum(one.regressed for one in found) for found in (alike, more)]
    sys.stdout.write(
        f"called a regression: the same {called[0]} of {count}, ort-cpu × {FACTOR} {called[1]} of {count}\n"
    )
    return int(called != [0, count])


def measure(folder: Path, more: dict[str, str]) -> Comparison:
    """One run beside the environment that it has itself."""
    command = [sys.executable, "-P", "-m", "isorun", "bench", *OPTIONS, "--base", sys.executable]
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, **more})
    found = compare([read_run(max(folder.glob("isorun-runs/*/")))])
    sys.stdout.write(f"{'slower' if more else 'the same'}: {told(found)}\n")
    sys.stdout.flush()
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else RUNS))
