"""A streamed export of a large preset, with its peak memory: at most the size of its file and 2 GiB.

python tests/benchmarks/stream_large.py FOLDER [PRESET] [LAYERS]

Without LAYERS the preset as published; a run of llama-7b at float16 writes 12.6 GiB.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

from isorun.export.exporter import export
from isorun.export.source import Source
from isorun.models.presets import PRESETS

GIB = 2**30


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "llama-7b"
    if len(sys.argv) > 3:
        PRESETS[name] = replace(PRESETS[name], layers=int(sys.argv[3]))
    began = time.perf_counter()
    artifact = export(Source("preset", name, "full"), "step", folder, dtype="fp16", stream=True)
    seconds = time.perf_counter() - began
    peak, size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, artifact.sizes["file_bytes"]
    sys.stdout.write(f"{name}: file {size / GIB:.2f} GiB, peak memory {peak / GIB:.2f} GiB, {seconds:.0f} s\n")
    sys.exit(peak > size + 2 * GIB)


if __name__ == "__main__":
    main()
