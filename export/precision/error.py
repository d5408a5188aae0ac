"""The error of an exported graph: the relative rms of each output against its source in float64, on example inputs.

Measured at export on what ONNX Runtime makes of the graph on a CPU without optimisations, or the ONNX reference where
that cannot run it, as with bfloat16. So it holds the rounding of weights and of quantised activations, and of a float16
graph not every rounding that a device with float16 arithmetic adds. What a runtime makes of the graph is for the bench.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ...models.signature import Array
from ..distance import relative
from ..machine import free_bytes
from .evaluate import Unevaluable, evaluate

SHARE = 0.5  # of the free memory, for the source in float64 and the graph


def measure(
    file: Path, truth: Callable[[Mapping[str, Array]], dict[str, Array]], feeds: Mapping[str, Array], weight_bytes: int
) -> tuple[dict[str, float], list[str]]:
    """The error of each output by name, and a note where it could not be measured.

    `feeds` are in the types of the graph; the source, `truth`, computes with the very same numbers. `weight_bytes` are
    those of the source in float32.
    """
    needed, free = 4 * weight_bytes, free_bytes()  # float64, and as much for graph and runtime
    if needed > SHARE * free:
        return {}, [f"error not measured: it needs {needed / 2**30:.0f} GiB, and {free / 2**30:.0f} are free"]
    try:
        found, wanted = evaluate(file, feeds), truth(feeds)
    except Unevaluable as reason:
        return {}, [f"error not measured: {reason}"]
    return relative(found, wanted), []
