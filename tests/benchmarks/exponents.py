"""The exponents in a pytest-benchmark file: how the median time of each kind of case grows with n.

python tests/benchmarks/exponents.py times.json
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from isorun.bench.complexity import slope


def main() -> None:
    times: dict[str, dict[int, float]] = defaultdict(dict)
    for case in json.loads(Path(sys.argv[1]).read_text())["benchmarks"]:
        times[case["extra_info"]["what"]][case["extra_info"]["n"]] = case["stats"]["median"]
    for what, medians in times.items():
        lengths = sorted(medians)
        exponent = slope(lengths, [medians[n] for n in lengths])
        sys.stdout.write(f"{what:24} exponent {exponent:.2f} over n = {lengths[0]}…{lengths[-1]}\n")


if __name__ == "__main__":
    main()
