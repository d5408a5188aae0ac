"""What a run's header says about its exported graphs: operators, sizes, the end of the positions.

`exports` is a list with a mapping for each graph: what identifies it (`model`, `size`, `phase`, `dtype`) and, of the
export's manifest, `target`, `opset`, `ops` (operator to count), `sizes` (`source_bytes`, `file_bytes`), `seconds` and
`notes`, with `max_tokens`, the end of the model's positions, `sparse`, what its attention reads when that is not all
keys (`reads`) and the n from which time can tell (`told_from`), and `in_pieces`, what the graph computes in pieces that
one operator could. Any of them may be absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..bench.records import Run
from .format import plain
from .series import Group

Facts = Mapping[str, Any]


def graphs(run: Run) -> list[Facts]:
    """What is known about each graph of a run."""
    found = run.header.get("exports")
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list | tuple) else []


def facts(run: Run, group: Group) -> Facts:
    """What is known about the graph of a group; empty when nothing is."""
    wanted = {"model": group.model, "size": group.size, "phase": group.phase, "dtype": group.dtype}
    return next((item for item in graphs(run) if all(item.get(key) == value for key, value in wanted.items())), {})


def positions(run: Run, group: Group) -> int | None:
    """Where the positions of a model end; None when they do not, or nobody wrote it down."""
    return whole(facts(run, group).get("max_tokens"))


def texts(value: Any) -> list[str]:
    """The texts of a list, or none for whatever else a header holds."""
    return [plain(item) for item in value] if isinstance(value, list | tuple) else []


def counts(value: Any) -> dict[str, int]:
    """Names with their counts, without whatever else a header holds."""
    pairs = value.items() if isinstance(value, Mapping) else ()
    return {str(key): count for key, item in pairs if (count := whole(item))}


def whole(value: Any) -> int | None:
    """A positive whole number, or None for whatever else a header holds."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
