"""What `fast.py` says of the whole zoo: that every pass is proved on every graph, and how much faster the graphs are.

Every row goes to a file of the folder as soon as it is known, and a second call does what is left.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import torch
from scipy.stats import t as student
from torch.export import Dim

from isorun.bench.contest import Entry, contest
from isorun.bench.truth import SAME, same_function
from isorun.bench.truth import write as write_truth
from isorun.export.adoption import adopt_file
from isorun.export.artifact import ArtifactError, ExportedModel
from isorun.export.exporter import ExportError
from isorun.export.source import Source
from isorun.export.trace import quiet, refusal
from isorun.models.phases import phases
from isorun.models.presets import PRESETS
from isorun.models.signature import Signature

LENGTHS = (128, 1024, 4096)
ROUNDED = 1e-6  # from the source: what constants in float32 leave below opset 23, before any pass
BUDGET_S, FLEETS = 3.0, 3  # of one case: the blocks of all fleets, and how often new processes are started
PASSES = ("decomposed", "rotary", "causal", "bidirectional", "layout")
Row = dict[str, Any]


class Rows:
    """The rows of a JSON-lines file; the last may have been cut off, and is then not there."""

    def __init__(self, file: Path) -> None:
        self._file = file
        text = file.read_text() if file.is_file() else ""
        self.all: list[Row] = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        if text and not text.endswith("\n"):
            file.write_text("".join(json.dumps(row) + "\n" for row in self.all))

    def has(self, **key: Any) -> bool:
        return any(all(row[name] == value for name, value in key.items()) for row in self.all)

    def add(self, row: Row) -> None:
        self.all.append(row)
        with self._file.open("a") as stream:
            stream.write(json.dumps(row) + "\n")


def distinct(size: str) -> list[str]:
    """The presets that differ in more than their name at a size; the first of equal ones stands for them."""
    first: dict[str, str] = {}
    for name, preset in PRESETS.items():
        first.setdefault(repr(replace(preset.at(size), name="", source="")), name)  # type: ignore[arg-type]
    return list(first.values())


def default_export(name: str, size: str, folder: Path) -> ExportedModel:
    """What `torch.onnx.export` makes of a preset with nothing said but names and free axes.

    Raises:
        ExportError: it refuses; the message says why.
    """
    if folder.exists():
        return ExportedModel.open(folder)
    source = Source("preset", name, size)
    module = source.module("forward").eval()
    signature = module.signature
    example = tuple(torch.from_numpy(array) for array in signature.feeds(module.example, padding="left").values())
    axes = tuple(
        {i: Dim.DYNAMIC for i, axis in enumerate(spec.shape) if isinstance(axis, str)} for spec in signature.inputs
    )
    with tempfile.TemporaryDirectory() as place, torch.no_grad(), quiet():
        file = Path(place) / "model.onnx"
        names = [[spec.name for spec in specs] for specs in (signature.inputs, signature.outputs)]
        try:
            torch.onnx.export(
                module, example, file, input_names=names[0], output_names=names[1], dynamic_shapes=(axes,), dynamo=True
            )
        except Exception as error:  # two exporters in one: what they raise has no class in common
            raise ExportError(f"torch.onnx.export: {refusal(error)}") from error
        _name_axes(file, signature)
        adopted = adopt_file(file, folder)
    limits = {spec.name: spec.limit for spec in signature.inputs if spec.limit is not None}
    replace(adopted, limits=limits, source=source).write_manifest()
    return ExportedModel.open(folder)


def _name_axes(file: Path, signature: Signature) -> None:
    """The names of the free axes, which the exporter makes up, so that inputs of any size can be drawn."""
    model = onnx.load(file, load_external_data=False)
    given = [*zip(model.graph.input, signature.inputs, strict=True)]
    for value, spec in [*given, *zip(model.graph.output, signature.outputs, strict=True)]:
        for dim, axis in zip(value.type.tensor_type.shape.dim, spec.shape, strict=True):
            if isinstance(axis, str):
                dim.dim_param = axis
    onnx.save(model, file)


def proofs(root: Path, exports: Callable[..., Path], names: Sequence[str] = (), opset: int = 23) -> None:
    """What each pass did to every graph at `tiny` and whether it is proved, and the distance from source to result.

    The passes were held to the graph before them at export (`bench.proof`); the result is held to the source here.
    """
    rows = Rows(root / f"proofs-{opset}.jsonl")
    for name in names or PRESETS:
        for phase in phases(PRESETS[name]):
            if rows.has(model=name, phase=phase):
                continue
            try:
                artifact = ExportedModel.open(exports(name, phase, opset=opset, target="ort-cpu", size="tiny"))
            except ExportError as error:
                rows.add(
                    {
                        "model": name,
                        "phase": phase,
                        "cells": [str(error)] + [""] * (len(PASSES) - 1),
                        "distance": math.inf,
                    }
                )
                continue
            said = dict(note.split(": ", 1) for note in artifact.notes if note.split(":")[0] in PASSES)
            cells = [_cell(said.get(one, "not run")) for one in PASSES]
            distance = same_function(str(artifact.folder))["distance"]
            rows.add({"model": name, "phase": phase, "cells": cells, "distance": distance})
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows.all:
        groups.setdefault((row["phase"], *row["cells"]), []).append(row)
    print(f"| presets | phase | {' | '.join(PASSES)} | from the source |\n|{'---|' * (2 + len(PASSES))}---:|")
    for (phase, *cells), some in groups.items():
        models = ", ".join(f"`{row['model']}`" for row in some)
        print(f"| {models} | {phase} | {' | '.join(cells)} | {max(row['distance'] for row in some):.1e} |")
    limit = SAME if opset >= 23 else ROUNDED
    bad = [row for row in rows.all if row["distance"] > limit or any("not proved" in cell for cell in row["cells"])]
    print(f"\n{len(rows.all)} graphs, {len(bad)} not proved")


def _cell(said: str) -> str:
    """How often a pass was applied, a dash where its condition holds nowhere; anything else is said in full."""
    if said.startswith("not applied"):
        return "–"
    applied, proved, _ = said.removeprefix("applied to ").partition(", the same function in float64")
    return applied if proved else f"not proved: {said}"


def zoo(root: Path, exports: Callable[..., Path], names: Sequence[str] = (), minutes: float = 30.0) -> None:
    """A graph for ONNX Runtime's CPU against `torch.onnx.export` by default, for every preset at `small`.

    All at one length, then all at the next: what the time did not suffice for is the end of the list, whatever it is.
    """
    rows, ends = Rows(root / "zoo.jsonl"), time.monotonic() + 60 * minutes
    for n, name in ((n, name) for n in LENGTHS for name in names or distinct("small")):
        if rows.has(model=name, n=n):
            continue
        if time.monotonic() > ends:
            print(f"{minutes:g} minutes are over; the same command goes on", flush=True)
            break
        row = {"model": name, "n": n, **_case(root, exports, name, n)}
        rows.add(row)
        print(_shown(row), flush=True)
    print("\n".join(["", "| work | ratio | ms | |", "|---|---|---|---|", *map(_shown, rows.all), *_means(rows.all)]))


def _case(root: Path, exports: Callable[..., Path], name: str, n: int) -> Row:
    """The ratio of one preset at one length, or the reason why there is none."""
    preset = PRESETS[name].at("small")
    if preset.max_tokens is not None and n > preset.max_tokens:
        return {"reason": f"its table ends at {preset.max_tokens} positions"}
    sizes = {"batch": 1, "sequence": n, "source": n, "past": 0}
    try:
        base = default_export(name, "small", root / f"{name}-default").folder
        fast = exports(name, target="ort-cpu")
        with tempfile.TemporaryDirectory() as place:
            truth = Path(place) / "truth.npz"
            write_truth(str(fast), sizes, str(truth))
            entries = {"base": Entry(base), "fast": Entry(fast)}
            found = contest(entries, sizes, truth=truth, budget_s=BUDGET_S, fleets=FLEETS)
    except (ArtifactError, ExportError) as error:
        return {"reason": str(error)}
    one, other = found["base"], found["fast"]
    if isinstance(one, str) or isinstance(other, str):
        return {"reason": "; ".join(f"{which}: {said}" for which, said in found.items() if isinstance(said, str))}
    ratio = other.over(one)
    interval = ratio.interval
    times = {"base_s": one.seconds, "fast_s": other.seconds}
    return {"ratio": ratio.ratio, "low": interval.low, "high": interval.high, **times}


def _shown(row: Row) -> str:
    if "reason" in row:
        return f"| {row['model']} n={row['n']} | {row['reason'].replace('|', '/')} | | |"
    interval = f"{row['low']:.2f}–{row['high']:.2f}"
    times = f"{row['base_s'] * 1e3:.4g} → {row['fast_s'] * 1e3:.4g}"
    return f"| {row['model']} n={row['n']} | {row['ratio']:.2f}× ({interval}) | {times} | |"


def _means(rows: list[Row]) -> Iterator[str]:
    """The geometric means at each length and of all; what is left out is counted."""
    for n in (*LENGTHS, None):
        some = [row for row in rows if n in (None, row["n"])]
        measured = [row for row in some if "ratio" in row]
        by_model: dict[str, list[float]] = {}
        for row in measured:
            by_model.setdefault(row["model"], []).append(math.log(row["ratio"]))
        if len(by_model) > 1:
            mean, low, high = geometric_mean([statistics.fmean(logs) for logs in by_model.values()])
            left = f", {len(some) - len(measured)} cases left out" if len(some) > len(measured) else ""
            which = f"n={n}" if n else "all lengths"
            what = f"geometric mean of {len(by_model)} presets, {which}{left}"
            yield f"| {what} | {mean:.2f}× ({low:.2f}–{high:.2f}) | | |"


def geometric_mean(logs: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of ratios, given their logarithms, and its 95 % interval by Student's t.

    The interval is that over presets: how much the mean depends on which of them the zoo happens to hold.
    """
    mean = statistics.fmean(logs)
    half = float(student.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)
