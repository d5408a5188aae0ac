"""Identical ONNX Runtime processes held against each other on this machine: how often are they told apart?

    python tests/benchmarks/resolution.py [comparisons] [noise.json]

Each comparison is of two new processes of one exported decode step, by the rules of a run and in its time for one
length; the control is the one that a run of `MODELS` models would have, made of the comparisons beside it. Prints the
share of comparisons that call one of two equal runtimes faster, with and without the control, the share that sees one
slowed by 3 %, and the slowdown that 90 % see. The 90 comparisons of the default take some eight minutes. With a file
the block medians are kept: tests/bench/noise.json.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles, stdev

import numpy as np

from isorun.bench.client import Worker
from isorun.bench.measure import FEWEST, ROUNDS, precise
from isorun.bench.plan import MOST_S
from isorun.bench.timing import Comparison, compare, log_error
from isorun.bench.twins import Spread, Twin, estimate
from isorun.export.exporter import export
from isorun.export.source import Source

COMPARISONS = 90
MODELS = 8  # whose controls a comparison is judged by: a model and phase each, as in a short run
SLOWED = 1.03
SIZES = {"batch": 1, "sequence": 1, "past": 256, "source": 256}
Blocks = tuple[list[float], list[float]]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COMPARISONS
    if count <= MODELS:
        sys.exit(f"{count} comparisons: a control of {MODELS} models needs at least {MODELS + 1}")
    order = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        export(Source("preset", "gpt2", "small"), "step", Path(name) / "model")
        found = [fresh(Path(name), order) for _ in range(count)]
    spreads = [control([found[(i + 1 + k) % count] for k in range(MODELS)]) for i in range(count)]
    bare = [compare(*blocks) for blocks in found]
    held = [compare(*blocks, apart=one.apart) for blocks, one in zip(found, spreads, strict=True)]
    slowed = [
        compare(first, [SLOWED * ns for ns in second], apart=one.apart).word
        for (first, second), one in zip(found, spreads, strict=True)
    ]
    seen = np.quantile([one.interval.high for one in held], 0.9) - 1
    ratios = [math.log(one.ratio) for one in bare]
    sys.stdout.write(
        f"standard deviation of the ratio of two processes: {100 * stdev(ratios):.2f} %; of its blocks: "
        f"{100 * median(log_error(_ratios(blocks)) for blocks in found):.2f} % (standard error, median)\n"
        f"what a control of {MODELS} models says, quartiles of its deviation: {_quartiles(spreads)}\n"
        f"told apart though equal: {apart(held)} of {count}; by the blocks alone: {apart(bare)} of {count}\n"
        f"seen when slowed by {SLOWED - 1:.0%}: {slowed.count('slower')} of {count}; "
        f"called faster: {slowed.count('faster')}\n"
        f"seen in 90 % of comparisons: a slowdown by {100 * seen:.1f} %\n"
    )
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(json.dumps([[list(map(round, side)) for side in both] for both in found]) + "\n")


def fresh(folder: Path, order: random.Random) -> Blocks:
    """Block medians in nanoseconds of two new processes, stopped as a run stops."""
    blocks: Blocks = ([], [])
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(folder / f"{which}.log", threads=1)) for which in (0, 1)]
        for worker in workers:
            worker.ask("load", folder=str(folder / "model"), runtime="ort-cpu", threads=1)
            worker.ask("stage", sizes=SIZES, truth=None)
        for done in range(1, ROUNDS + 1):
            for which in order.sample((0, 1), 2):
                answer = workers[which].ask("block", seconds=MOST_S / (2 * ROUNDS))
                blocks[which].append(float(median(answer["ns"])))
            if done >= FEWEST and precise(blocks):
                break
    return blocks


def control(pairs: list[Blocks]) -> Spread:
    """What these pairs would say as the twins of as many models."""
    twins = [
        Twin((str(i),), "ort-cpu", median(map(math.log, ratios)), log_error(ratios))
        for i, ratios in enumerate(map(_ratios, pairs))
    ]
    found = estimate(tuple(twins))
    assert found is not None  # there are some
    return found


def apart(found: list[Comparison]) -> int:
    """How many call one of two equal runtimes faster."""
    return sum(one.word in ("faster", "slower") for one in found)


def _ratios(blocks: Blocks) -> list[float]:
    return [one / other for one, other in zip(*blocks, strict=True)]


def _quartiles(spreads: list[Spread]) -> str:
    return ", ".join(f"{100 * quarter:.2f} %" for quarter in quantiles(one.deviation for one in spreads))


if __name__ == "__main__":
    main()
