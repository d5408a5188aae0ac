"""The columns of `measurements.csv`, of the Parquet file and of the JSON rows: name, kind, unit and meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Column:
    """One column; `unit` is empty for what has none. Any value may be missing, except those of a case's identity."""

    name: str
    kind: Literal["text", "integer", "number"]
    unit: str
    text: str


COLUMNS = (
    Column("model", "text", "", "the model's name"),
    Column("size", "text", "", "tiny, small, full, or the source's own word"),
    Column("phase", "text", "", "forward, step or encode"),
    Column("dtype", "text", "", "precision of the export"),
    Column("runtime", "text", "", "what ran it"),
    Column("batch", "integer", "rows", "rows of a call"),
    Column("seq", "integer", "tokens", "new tokens of a call, in each row"),
    Column("past", "integer", "tokens", "cached tokens before them"),
    Column("status", "text", "", "ok, skipped or failed"),
    Column("reason", "text", "", "why there is no time"),
    Column("median_ms", "number", "ms", "time of a call: median over the medians of the blocks"),
    Column("low_ms", "number", "ms", "lower end of its 95 % interval; empty when there is none"),
    Column("high_ms", "number", "ms", "upper end of its 95 % interval; empty when there is none"),
    Column("twin_ratio", "number", "ratio", "time of a second process of the runtime, the control, over this time"),
    Column("blocks", "integer", "blocks", "blocks that were timed"),
    Column("calls", "integer", "calls", "calls in all blocks"),
    Column("stopped", "text", "", "why the timing ended: precision or budget"),
    Column("tokens_per_s", "number", "tokens/s", "new tokens of all rows over the time of a call"),
    Column("prepare_s", "number", "s", "time to load the model"),
    Column("peak_bytes", "integer", "bytes", "peak resident memory of the process"),
    Column("flops", "integer", "operations", "what the model computes in a call; a multiply-add is two"),
    Column("dense_flops", "integer", "operations", "the same if a sparse model read every key; empty where it does"),
    Column("graph_flops", "integer", "operations", "what its graph computes in a call, node by node"),
    Column("graph_bytes", "integer", "bytes", "what the nodes of its graph read and write in a call"),
    Column("expected_ms", "number", "ms", "both at the rates that this runtime reached on bare products"),
    Column("weights_bytes", "integer", "bytes", "memory of the process for weights"),
    Column("cache_bytes", "integer", "bytes", "memory for past and present keys and values"),
    Column("arena_bytes", "integer", "bytes", "memory that the runtime keeps after a call"),
    Column("activations_bytes", "integer", "bytes", "memory that a call takes beyond these and gives back"),
    Column("gflops_per_s", "number", "Gflop/s", "flops over the time of a call"),
    Column("worst_error_ratio", "number", "ratio", "error against float64 over torch's own, of the worst output"),
    Column("provider", "text", "", "execution provider of the session"),
    Column("precision", "text", "", "what the session computes in"),
    Column("threads", "integer", "threads", "threads of the session"),
)
NAMES = tuple(column.name for column in COLUMNS)
IDENTITY = NAMES[:9]  # never missing
