"""Two identical ONNX Runtime processes held against each other on this machine: how often are they told apart?

python tests/benchmarks/resolution.py [comparisons] [noise.json]

Prints the share of comparisons that call one of two equal runtimes faster, and of those that see it slowed by 3 %, by
the rules of a run and in its time for one length. With a file the block medians are kept: tests/bench/noise.json.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles

from isorun.bench.client import Worker
from isorun.bench.measure import FEWEST, ROUNDS, precise
from isorun.bench.plan import MOST_S
from isorun.bench.timing import compare
from isorun.export.exporter import export
from isorun.export.source import Source

SLOWED = 1.03


def pair(workers: list[Worker], order: random.Random) -> tuple[list[float], list[float]]:
    """Block medians in nanoseconds of one comparison, stopped as a run stops."""
    blocks: tuple[list[float], list[float]] = ([], [])
    for done in range(1, ROUNDS + 1):
        for which in order.sample((0, 1), 2):
            answer = workers[which].ask("block", seconds=MOST_S / (2 * ROUNDS))
            blocks[which].append(float(median(answer["ns"])))
        if done >= FEWEST and precise(blocks):
            break
    return blocks


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    order = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export(Source("preset", "gpt2", "small"), "step", folder / "model")
        workers = [Worker(folder / f"{which}.log", threads=1) for which in (0, 1)]
        for worker in workers:
            worker.ask("load", folder=str(folder / "model"), runtime="ort-cpu", threads=1)
            worker.ask("stage", sizes={"batch": 1, "sequence": 1, "past": 256, "source": 256}, truth=None)
        found = [pair(workers, order) for _ in range(count)]
        for worker in workers:
            worker.close()
    same = [compare(first, second).word for first, second in found]
    slowed = [compare(first, [SLOWED * ns for ns in second]).word for first, second in found]
    spread = [_spread(first, second) for first, second in found]
    apart = same.count("faster") + same.count("slower")
    sys.stdout.write(
        f"told apart though equal: {apart} of {count}; seen when slowed by 3 %: {slowed.count('slower')} of {count}\n"
        f"standard deviation of a pair's ratio, quartiles: {', '.join(f'{100 * q:.2f} %' for q in quantiles(spread))}\n"
    )
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(json.dumps([[list(map(round, side)) for side in both] for both in found]) + "\n")


def _spread(first: list[float], second: list[float]) -> float:
    ratios = [one / other for one, other in zip(first, second, strict=True)]
    centre = median(ratios)
    return (sum((ratio / centre - 1) ** 2 for ratio in ratios) / (len(ratios) - 1)) ** 0.5


if __name__ == "__main__":
    main()
