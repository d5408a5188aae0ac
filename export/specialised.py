"""Nothing baked: a traced graph is run at other sizes than its example, and held to its source there.

Sizes lie on both sides of the traced ones and of each number that the source compares a size with: those in the guards
of the trace, and the windows, blocks and tables of its modules. The ruler is torch: how far it is from itself in
float64.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import cycle
from typing import Any

import numpy as np
import onnx_ir
from torch import nn

from ..models.phases import PhaseModule
from ..models.signature import Array, Feeds
from .distance import rms
from .machine import free_bytes
from .outputs import outputs, outputs64
from .precision.evaluate import Unevaluable, evaluator
from .trace import ExportError, Guard

RATIO = 100.0  # of torch's own rounding: the order of sums costs less than 3, another branch far more than 1000
MOST_TOKENS = 600  # sizes beyond are left out: they would cost more than the export
MOST_BYTES = 2**28  # of weights: beyond, the graph is left to `isorun validate`
_SIZES = re.compile("window|block|chunk|position|context|seq_len|bucket|distance|max_len")
PASTS = (0, 1, 9)
Sizes = dict[str, int]


def check(
    model: onnx_ir.Model, module: PhaseModule, guards: Sequence[Guard], name: str, *, allowed: bool = False
) -> list[str]:
    """Compare graph and source at all these sizes; what was found, or not asked, as notes.

    Raises:
        ExportError: they differ at some size, or the graph refuses one that the source takes.
    """
    weights = sum(4 * parameter.numel() for parameter in module.parameters())
    if weights > MOST_BYTES or 5 * weights > free_bytes():
        return [f"not run at other sizes: {weights / 2**30:.1f} GiB of weights; `isorun validate` does it"]
    sizes = list(_sizes(module, guards))
    pairs = {i: feeds for i, size in enumerate(sizes) if (feeds := _feeds(module, size)) is not None}
    single = {i: out for i, feeds in pairs.items() if (out := _run(outputs, module, feeds)) is not None}
    wide = deepcopy(module)
    truth = {i: out for i in single if (out := _run(outputs64, wide, pairs[i])) is not None}
    try:
        run = evaluator(onnx_ir.serde.serialize_model(model))
    except Unevaluable as reason:
        return [f"not run at other sizes: {reason}"]
    for i, wanted in truth.items():
        fault = _fault(run, pairs[i], single[i], wanted)
        if fault is not None:
            says = f"at {_named(sizes[i], module)} {fault}{_taken(guards, sizes[i])}"
            if not allowed:
                raise ExportError(f"{name}: {says}; --allow-specialised exports it nevertheless")
            return [f"specialised: {says}"]
    return []


def _fault(run: Any, feeds: Feeds, single: Mapping[str, Array], truth: Mapping[str, Array]) -> str | None:
    """What is wrong with a graph's outputs, or None."""
    try:
        found = run(feeds)
    except Exception as error:  # evaluators have no base class for their errors
        return f"the graph refuses what its source takes: {' '.join(str(error).split())[:200]}"
    for name, array in truth.items():
        if found[name].shape != array.shape:
            return f"{name} has the shape {list(found[name].shape)}, and its source {list(array.shape)}"
        scale = rms(np.nan_to_num(array))
        floor = float(np.finfo(np.float32).eps) * scale
        off, ruler = rms(_apart(found[name], array)), max(rms(_apart(single[name], array)), floor)
        if not off <= RATIO * ruler:
            far = f"{name} is off by {off / (scale or 1.0):.1e} of its scale"
            return f"the graph is another function than its source: {far}"
    return None


def _taken(guards: Iterable[Guard], sizes: Sizes) -> str:
    """The conditions that the trace took for true and that these sizes do not meet; the model's own before torch's."""
    broken = [guard for guard in guards if not guard.holds(sizes)]
    asked = [guard for guard in broken if not guard.line.startswith("torch:")] or broken
    return f"; the trace took for true: {'; '.join(map(str, asked[:3]))}" if asked else ""


def _sizes(module: PhaseModule, guards: Iterable[Guard]) -> Iterator[Sizes]:
    """Batches of 1, 2 and 3 and pasts of 0, 1 and 9 tokens in turn, at each length that may matter."""
    traced = module.example.get("sequence", 0)
    numbers = {traced, *_numbers(module), *_compared(guards)}
    lengths = {1, 2, *(number + step for number in numbers for step in (0, 1))}
    batches, pasts = cycle((2, 1, 3)), cycle(PASTS)
    for length in sorted(length for length in lengths if 0 < length <= MOST_TOKENS):
        for past in PASTS if length <= 2 else (next(pasts),):
            yield {"batch": next(batches), "sequence": length, "past": past, "source": length + 2}


def _compared(guards: Iterable[Guard]) -> set[int]:
    """The whole numbers in the guards of a trace."""
    return {int(atom) for guard in guards for atom in guard.condition.atoms() if atom.is_Integer and atom > 1}


def _numbers(module: nn.Module) -> set[int]:
    """Whole numbers of modules, and of the configurations that they hold, whose names speak of lengths."""
    holders = [part for module in module.modules() for part in (module, getattr(module, "config", None))]
    fields = (item for holder in holders for item in vars(holder or nn.Module()).items())
    return {value for name, value in fields if type(value) is int and value > 1 and _SIZES.search(name)}


def _feeds(module: PhaseModule, sizes: Sizes) -> Feeds | None:
    """Inputs at these sizes; None where a position would lie beyond its table."""
    tables = [spec.limit for spec in module.signature.inputs if spec.name == "position_ids" and spec.limit]
    if any(sizes["sequence"] + sizes["past"] > limit for limit in tables):
        return None
    return module.signature.feeds(sizes, seed=sizes["sequence"], padding="left")


def _run(evaluate: Callable[[PhaseModule, Feeds], dict[str, Array]], module: PhaseModule, feeds: Feeds) -> Any:
    """The source's outputs by name; None where it refuses these sizes itself."""
    try:
        return evaluate(module, feeds)
    except Exception:  # a user's code raises what it likes
        return None


def _named(sizes: Sizes, module: PhaseModule) -> str:
    return ", ".join(f"{axis} {size}" for axis, size in sizes.items() if axis in module.signature.axes)


def _apart(one: Array, other: Array) -> Array:
    """The difference; none where both are no number, which a softmax over nothing is."""
    difference = one.astype(np.float64) - other
    return np.where(np.isnan(one) & np.isnan(other), 0.0, difference)
