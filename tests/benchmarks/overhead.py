"""What the harness adds to a decode step at `small`: its blocks against a bare loop over the same binding, interleaved.

python tests/benchmarks/overhead.py [PRESET]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import onnxruntime

from isorun.bench.subject import Subject
from isorun.bench.timing import median_interval
from isorun.export.exporter import export
from isorun.export.source import Source

SIZES = {"batch": 1, "sequence": 1, "past": 512, "source": 512}
ROUNDS, BLOCK_S = 41, 0.1


class Bare:
    """The same session options and a binding of its own, with nothing around the call."""

    def __init__(self, path: Path, feeds: dict[str, object], outputs: tuple[str, ...]) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._binding = self._session.io_binding()
        for name, array in feeds.items():
            self._binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        for name in outputs:
            self._binding.bind_output(name, "cpu")

    def block(self, seconds: float) -> list[int]:
        """Calls for so many seconds, the first two thrown away; nanoseconds each."""
        run, clock, binding, times = self._session.run_with_iobinding, time.perf_counter_ns, self._binding, []
        end = clock() + int(seconds * 1e9)
        while clock() < end:
            start = clock()
            run(binding)
            times.append(clock() - start)
        return times[2:]


def main() -> None:
    """Print the median ratio of harness over bare loop with its interval."""
    name = sys.argv[1] if len(sys.argv) > 1 else "llama3-8b"
    with tempfile.TemporaryDirectory() as folder:
        artifact = export(Source("preset", name, "small"), "step", Path(folder) / "model")
        signature = artifact.signature()
        subject = Subject(str(artifact.folder), "ort-cpu", threads=1)
        subject.stage(SIZES, None)
        bare = Bare(artifact.model_path, signature.feeds(SIZES), tuple(spec.name for spec in signature.outputs))
        bare.block(BLOCK_S)
        ratios = [median(subject.block(BLOCK_S)["ns"]) / median(bare.block(BLOCK_S)) for _ in range(ROUNDS)]
    interval = median_interval(ratios)
    sys.stdout.write(f"{name}: harness over bare loop {median(ratios):.4f} ({interval.low:.4f}-{interval.high:.4f})\n")


if __name__ == "__main__":
    main()
