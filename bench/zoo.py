"""The certificate over the whole zoo: every distinct graph of the presets at `tiny`, in several processes, resumable.

Presets that differ in size alone are one graph at `tiny`; the first of them stands for all.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ..export.artifact import ArtifactError
from ..export.source import Source
from ..runtimes.base import RuntimeFailure

NAMED = ("node", "operator")  # what a first difference may be to the fault
RECORDS = "mutants.jsonl"
SEEDS = 5  # of the weights, for graphs without a fault
Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One graph with the weights of a seed, and whether faults are planted in it."""

    model: str
    phase: str
    seed: int
    planted: bool = False


def tasks(*, planted: bool = True) -> list[Task]:
    """All of them: every graph with its mutants, one phase of each preset first; then the same with other weights.

    Not `planted`: every graph with the weights of every seed, and no mutants.
    """
    from ..models.phases import phases
    from ..models.presets import PRESETS

    first: dict[str, str] = {}
    for name, preset in PRESETS.items():
        first.setdefault(repr(replace(preset.at("tiny"), name="", source="")), name)
    graphs = [(name, phase) for name in first.values() for phase in phases(PRESETS[name])]
    graphs.sort(key=lambda graph: graph[1] != phases(PRESETS[graph[0]])[-1])
    return [Task(name, phase, seed, planted and seed == 0) for seed in range(SEEDS) for name, phase in graphs]


def run(folder: Path, jobs: int, budget_s: float, *, planted: bool = True) -> Iterator[tuple[Task, list[Row]]]:
    """Do what the records in a folder do not have yet, for about so long; each task is recorded when it is done."""
    folder.mkdir(parents=True, exist_ok=True)
    done = {Task(row["model"], row["phase"], row["seed"], bool(row["fault"])) for row in records(folder)}
    left = iter([task for task in tasks(planted=planted) if task not in done])
    ends = time.monotonic() + budget_s
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(_do, task): task for task in islice(left, jobs)}
        while running:
            future = next(as_completed(running))
            task, rows = running.pop(future), future.result()
            with (folder / RECORDS).open("a") as stream:
                stream.writelines(json.dumps(row) + "\n" for row in rows)
            yield task, rows
            another = next(left, None) if time.monotonic() < ends else None
            if another is not None:
                running[pool.submit(_do, another)] = another


def records(folder: Path) -> list[Row]:
    """What was recorded so far; a line that was cut off is left out."""
    path = folder / RECORDS
    if not path.is_file():
        return []
    whole = [line for line in path.read_text().splitlines() if line.endswith("}")]
    return [json.loads(line) for line in whole]


def _do(task: Task) -> list[Row]:
    """Export, validate without a fault, and plant all kinds if asked; the first row is that of the graph itself."""
    import torch

    from ..export.trace import ExportError
    from . import mutations
    from .certificate import Certificate, columns

    torch.set_num_threads(1)
    about = {"model": task.model, "phase": task.phase, "seed": task.seed}
    folder = Path(tempfile.mkdtemp(prefix="isorun-"))
    try:
        certificate = Certificate(_export(task, folder / "model"))
        failed = [finding.says for finding in certificate.findings(certificate.model) if finding.status == "fail"]
        rows: list[Row] = [{**about, "fault": "", "validate": "fail" if failed else "pass", "says": failed}]
        kinds = mutations.kinds() if task.planted else ()
        mutants = (certificate.mutant(kind) for kind in kinds)
        return rows + [{**about, **columns(mutant)} for mutant in mutants if mutant is not None]
    except (ExportError, ArtifactError, RuntimeFailure) as error:
        return [{**about, "fault": "", "validate": "fail", "says": [str(error)]}]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _export(task: Task, folder: Path) -> Path:
    from ..export.exporter import export

    export(Source("preset", task.model, "tiny", task.seed), task.phase, folder)
    return folder


def page(rows: list[Row]) -> str:
    """The table as Markdown: what is found, what the usual checks find, and whether the place is named."""
    clean = list({(row["model"], row["phase"], row["seed"]): row for row in rows if not row["fault"]}.values())
    mutants = [row for row in rows if row["fault"]]
    counted = [row for row in mutants if row["validate"] != "equivalent"]
    graphs = {(row["model"], row["phase"]) for row in mutants}
    usual = [column for column in (counted[0] if counted else {}) if column.startswith("allclose")]
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "onnx", "onnxscript", "onnxruntime"))
    total = len(counted)
    presets = len({model for model, _ in graphs})
    lines = [
        "# Planted faults",
        "",
        f"Made by `isorun mutate --all` on {datetime.now(UTC):%Y-%m-%d}, with {versions}: {len(graphs)} graphs of "
        f"{presets} presets at `tiny`, each "
        "with one fault of every kind that has a place in it. Presets that differ in size alone are one graph at "
        "`tiny`, and are there once. A mutant within 1e-9 of the unmutated graph, in float64 over a wide grid of other "
        "sizes, does not count: it is another way of writing the same function. `allclose` is `numpy.allclose` of ONNX "
        "Runtime against torch in float32, at the size that the export was traced at: what tools of the field do.",
        "",
        f"Of {len(mutants)} mutants {total} change the function.",
        "",
        "| finds | mutants |",
        "|---|---:|",
        f"| `isorun validate` | {_found(counted, 'validate')} of {total} |",
        *(f"| `numpy.{name.replace(' ', '` at ')} | {_found(counted, name)} of {total} |" for name in usual),
        "",
        *_named(counted),
        *_clean(clean),
        f"| fault | counts | validate | place named | {' | '.join(usual)} |",
        f"|---|---:|---:|---:|{'---:|' * len(usual)}",
    ]
    for kind in sorted({row["fault"] for row in counted}):
        some = [row for row in counted if row["fault"] == kind]
        place = sum(row["names"] in NAMED for row in some)
        figures = " | ".join(str(_found(some, name)) for name in usual)
        lines.append(f"| {kind} | {len(some)} | {_found(some, 'validate')} | {place} | {figures} |")
    return "\n".join(lines) + "\n"


def _named(counted: list[Row]) -> list[str]:
    names = Counter(row["names"] for row in counted)
    other = [f"{row['fault']} in {row['model']} {row['phase']}" for row in counted if row["names"] not in NAMED]
    where = f" The others: {'; '.join(other)}." if other else ""
    says = (
        f"The first value that differs, as `validate` names it, is made by the mutated node or by one that reads its "
        f"output in {names['node']} of {len(counted)}; in {names['operator']} more it is that of the mutated operator, "
        f"which was exported as several nodes.{where}"
    )
    return [says, ""]


def _clean(clean: list[Row]) -> list[str]:
    failed = [row for row in clean if row["validate"] != "pass"]
    seeds = Counter((row["model"], row["phase"]) for row in clean)
    all_seeds = sum(count == SEEDS for count in seeds.values())
    says = (
        f"Without a fault {len(clean) - len(failed)} of {len(clean)} graphs pass: {all_seeds} of {len(seeds)} with the "
        f"weights of {SEEDS} seeds, the others with fewer."
    )
    return [says, ""]


def _found(rows: list[Row], column: str) -> int:
    return sum(row[column] == "found" for row in rows)
