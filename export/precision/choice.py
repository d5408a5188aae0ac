"""Which matrices of a quantised graph keep a higher precision, so that its outputs drift no further than asked.

    drift    of the worst output: rms(graph - source in float64) / rms(source), the `errors` of a manifest
    alone    what the drift is with one matrix quantised and all others in float32; measured for each
    up       matrices go up in the order of what they cost alone: int8 → fp32, int8-weights → fp32, and int4 first to
             int8-weights, all of them, and then to fp32

The fewest steps up whose drift is within the limit are found by bisection: of L matrices L + log2 L graphs are run, or
so. What is chosen was measured, and so was one step less, which is too far. Errors of layers do not add up exactly: it
is not proved that no other choice would keep fewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

HIGHER: Mapping[str, tuple[str, ...]] = {
    "int8": ("fp32",),
    "int8-weights": ("fp32",),
    "int4": ("int8-weights", "fp32"),
}


@dataclass(frozen=True)
class Choice:
    """The precision of each matrix that went up, what it costs alone, and the drift with none of them up.

    `layers` holds the layer of every matrix by its name.
    """

    limit: float
    layers: Mapping[str, str]
    before: float
    kept: Mapping[str, str]
    alone: Mapping[str, float]

    def note(self, dtype: str, after: float) -> str:
        """What was chosen, and the drift that was measured of it."""
        counts = Counter(self.kept.values())
        up = ", ".join(f"{counts[one]} in {one}" for one in HIGHER[dtype] if counts[one])
        rest = f"{len(self.layers) - len(self.kept)} in {dtype}"
        worst = max(self.kept, key=lambda name: self.alone[name], default=None)
        most = f"; the most costly alone is {self.layers[worst]}, {self.alone[worst]:.2g}" if worst else ""
        return (
            f"max drift {self.limit:g}: of {len(self.layers)} matrices {', '.join(filter(None, (rest, up)))}; "
            f"drift {after:.2g}, with all in {dtype} {self.before:.2g}{most}"
        )

    def fields(self, after: float) -> dict[str, object]:
        """What the manifest holds of it."""
        return {
            "drift": {"limit": self.limit, "before": self.before, "after": after},
            "kept": {
                name: {"layer": self.layers[name], "dtype": dtype, "alone": self.alone[name]}
                for name, dtype in self.kept.items()
            },
        }


def choose(layers: Mapping[str, str], dtype: str, limit: float, drift: Callable[[Mapping[str, str]], float]) -> Choice:
    """Choose among matrices, whose layers are given by name.

    `drift` measures the graph in which the named ones have another precision than `dtype`.

    Raises:
        ValueError: the limit is not above 0, or not even float32 is within it; the message says how near it comes.
    """
    single = dict.fromkeys(layers, "fp32")
    least = drift(single)
    if not (limit > 0 and least <= limit):
        rule = "" if limit > 0 else "a limit lies above 0, and "
        raise ValueError(f"max drift {limit:g}: {rule}the least that can be had is {least:.2g}, with nothing quantised")
    before = drift({})
    if before <= limit:
        return Choice(limit, layers, before, {}, {})
    alone = {name: drift({other: "fp32" for other in layers if other != name}) for name in layers}
    order = sorted(layers, key=lambda name: -alone[name])
    low, high = 0, len(layers) * len(HIGHER[dtype])  # too far, and near enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if drift(_up(order, dtype, middle)) <= limit else (middle, high)
    return Choice(limit, layers, before, _up(order, dtype, high), alone)


def _up(order: Sequence[str], dtype: str, steps: int) -> dict[str, str]:
    """The precision of each matrix that went up in so many steps."""
    kept: dict[str, str] = {}
    for turn, higher in enumerate(HIGHER[dtype]):
        kept |= dict.fromkeys(order[: max(0, steps - turn * len(order))], higher)
    return kept
