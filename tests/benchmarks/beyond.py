"""Do times beyond the measured lengths come out as predicted? python tests/benchmarks/beyond.py FACTOR RUN…

Of every line of passes in each run, the lengths up to the longest over FACTOR are taken for all that was measured, and
the law that a report would go by is asked for the others. Prints each prediction with its interval beside the time that
was measured, and how many intervals hold it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from isorun.bench.extrapolate import predict
from isorun.bench.records import Run
from isorun.bench.runfolder import read_run
from isorun.reports.ahead import law_ahead
from isorun.reports.series import Group, groups


def main(factor: float, folders: list[Path]) -> None:
    found = [one for folder in folders for one in judged(read_run(folder), factor)]
    sys.stdout.write("".join(f"{text}\n" for text, _ in found))
    sys.stdout.write(f"{sum(held for _, held in found)} of {len(found)} intervals hold what was measured\n")


def judged(run: Run, factor: float) -> Iterator[tuple[str, bool]]:
    """A line of text and whether the interval holds, for each length beyond."""
    for group in groups(run):
        if group.phase == "forward":
            for runtime in group.lines:
                yield from _line(run, group, runtime, factor)


def _line(run: Run, group: Group, runtime: str, factor: float) -> Iterator[tuple[str, bool]]:
    line = group.curve(runtime)
    longest = max((m.case.length for m in line), default=0) / factor
    beyond = [m for m in line if m.case.length > longest]
    left = replace(run, measurements=tuple(m for m in run.measurements if m not in beyond))
    law = next((law_ahead(left, one, runtime) for one in groups(left) if one.title == group.title), None)
    for m in beyond if law else ():
        assert law is not None
        low, mid, high = (value / 1e6 for value in predict(law, m.case.length))
        took = (m.median_ns or 0.0) / 1e6
        said = (
            f"{took:.4g} ms, predicted {mid:.4g} ({low:.4g}-{high:.4g}) from n = {law.lengths[0]} to {law.lengths[-1]}"
        )
        yield f"{run.folder.name} {group.title} {runtime} n = {m.case.length}: {said}", low <= took <= high


if __name__ == "__main__":
    main(float(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
