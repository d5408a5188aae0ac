"""What one call has to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Work:
    """What one call at a length has to do, where that is known: operations by the model's structure (`dense_flops`: if
    a sparse one read every key), operations and bytes by the graph, the memory that is predicted from it, and by
    runtime the operations and bytes a nanosecond."""

    batch: int
    length: int
    flops: int | None = None
    dense_flops: int | None = None
    graph_flops: int | None = None
    graph_bytes: int | None = None
    predicted: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def expected_ns(self, runtime: str) -> float | None:
        """Operations and bytes at the rates of a runtime, one after the other; None where one of these is not known."""
        if runtime not in self.rates or not self.graph_flops or not self.graph_bytes:
            return None
        flops, size = self.rates[runtime]
        return self.graph_flops / flops + self.graph_bytes / size

    @property
    def amount(self) -> float:
        """What the time of a call goes by; without a better count the square of the length, as the worst case."""
        return self.graph_flops or self.flops or float(self.batch * max(1, self.length) ** 2)
