"""What a model gains from each session option and from fused operators, on this machine, and all that helps together.

Every candidate differs from the base, the portable graph under the runtime's defaults, in one thing. Those that are
faster for sure are then put together, and the combination has to beat the base and the best single one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..export.artifact import ExportedModel
from ..export.exporter import export
from ..export.folder import whole
from ..export.passes import session as session_for
from ..export.source import Source
from .contest import Entry, Result, contest
from .proof import prover
from .timing import Comparison
from .truth import write as write_truth

RUNTIME = "ort-cpu"
BASE = "portable, all defaults"
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "without SkipLayerNormFusion": {"disabled_optimizers": "SkipLayerNormFusion"},
    "without GeluFusion": {"disabled_optimizers": "GeluFusionL1 GeluFusionL2 BiasGeluFusion"},
    "optimisation basic": {"graph_optimization_level": "ORT_ENABLE_BASIC"},
    "optimisation extended": {"graph_optimization_level": "ORT_ENABLE_EXTENDED"},
    "no memory arena": {"enable_cpu_mem_arena": "0"},
    "no memory pattern": {"enable_mem_pattern": "0"},
    "threads do not spin": {"session.intra_op.allow_spinning": "0"},
    "denormals are zero": {"session.set_denormal_as_zero": "1"},
}


@dataclass(frozen=True)
class Setting:
    """A way to run a model: the graph's target, session options, and threads."""

    target: str = "portable"
    session: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1

    def joined(self, other: Setting, base: Setting) -> Setting:
        """This one with all in which another differs from the base; lists of optimisers are joined."""
        both = "disabled_optimizers"
        names = dict.fromkeys([*self.session.get(both, "").split(), *other.session.get(both, "").split()])
        session = {**self.session, **other.session} | ({both: " ".join(names)} if names else {})
        return Setting(
            other.target if other.target != base.target else self.target,
            session,
            other.threads if other.threads != base.threads else self.threads,
        )


@dataclass(frozen=True)
class Trial:
    """A setting, and how much faster than the base it is; `reason` where it does not run."""

    name: str
    setting: Setting
    gain: Comparison | None = None
    seconds: float | None = None
    reason: str | None = None

    @property
    def helps(self) -> bool:
        """Faster for sure."""
        return self.gain is not None and self.gain.word == "faster"


def settings(threads: int | None) -> dict[str, Setting]:
    """The base first, and each candidate by name; `threads` fixes their number, which is a candidate otherwise."""
    base = Setting(threads=threads or 1)
    found = {BASE: base, f"graph for {RUNTIME}": replace(base, target=RUNTIME, session=session_for(RUNTIME))}
    found |= {name: replace(base, session=options) for name, options in OPTIONS.items()}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts = () if threads else sorted({2**i for i in range(1, cores.bit_length()) if 2**i <= cores} | {cores} - {1})
    return found | {f"{count} threads": replace(base, threads=count) for count in counts}


def tune(
    source: Source, phase: str, folder: Path, sizes: Mapping[str, int], *, threads: int | None, budget_s: float
) -> list[Trial]:
    """Try all, and write the fastest into `folder`; the trials, the chosen one last.

    Raises:
        ArtifactError, ExportError: the folder is in use, or the model cannot be exported.
    """
    with whole(folder) as part:
        work = part / "work"
        graphs = {
            target: export(source, phase, work / target, target=target, prove=prover(source.weight_bytes())).folder
            for target in ("portable", RUNTIME)
        }
        truth = work / "truth.npz"
        write_truth(str(graphs["portable"]), dict(sizes), str(truth))
        arena = _Arena(graphs, sizes, truth, settings(threads))
        trials = arena.tried(arena.candidates, budget_s * 0.7)
        best = arena.best(trials, budget_s * 0.3)
        _write(ExportedModel.open(graphs[best.setting.target]), best, part)
        shutil.rmtree(work)
    return [*trials, best]


class _Arena:
    """The graphs by target, the size at which they are timed, and the truth that outputs are held to."""

    def __init__(
        self, graphs: Mapping[str, Path], sizes: Mapping[str, int], truth: Path, candidates: Mapping[str, Setting]
    ) -> None:
        self._graphs, self._sizes, self._truth = graphs, sizes, truth
        self.candidates = candidates

    def tried(self, candidates: Mapping[str, Setting], budget_s: float) -> list[Trial]:
        """All in one contest, whose base is the first."""
        entries = {
            name: Entry(self._graphs[setting.target], RUNTIME, setting.threads, setting.session)
            for name, setting in candidates.items()
        }
        results = contest(entries, self._sizes, truth=self._truth, budget_s=budget_s)
        base = results[next(iter(candidates))]
        return [_trial(name, setting, results[name], base) for name, setting in candidates.items()]

    def best(self, trials: list[Trial], budget_s: float) -> Trial:
        """The base, the best single candidate, or what helps together: the fastest in a contest of the three.

        Of ten candidates that change nothing one is likely to look faster; measured again, it does not.
        """
        base = self.candidates[BASE]
        helpful = sorted((trial for trial in trials if trial.helps), key=_ratio, reverse=True)
        if not helpful:
            return trials[0]
        together = base
        for trial in reversed(helpful):  # of two values for one option the better wins
            together = together.joined(trial.setting, base)
        final = {BASE: base, helpful[0].name: helpful[0].setting}
        if len(helpful) > 1:
            final["together: " + ", ".join(trial.name for trial in helpful)] = together
        return max((trial for trial in self.tried(final, budget_s) if trial.helps), key=_ratio, default=trials[0])


def _trial(name: str, setting: Setting, result: Result | str, base: Result | str) -> Trial:
    if isinstance(result, str):
        return Trial(name, setting, reason=result)
    gain = None if isinstance(base, str) or result is base else result.over(base)
    return Trial(name, setting, gain, result.seconds)


def _ratio(trial: Trial) -> float:
    return trial.gain.ratio if trial.gain else 1.0


def _write(artifact: ExportedModel, best: Trial, folder: Path) -> None:
    """The chosen graph with its session options in the manifest."""
    for file in artifact.files:
        shutil.copy2(artifact.folder / file, folder / file)
    gain = f"{best.gain.ratio:.2f} times as fast as the base" if best.gain else "nothing was faster for sure"
    note = f"tuned: {best.name}, {best.setting.threads} thread(s): {gain}"
    changes: dict[str, Any] = {"session": dict(best.setting.session), "notes": (*artifact.notes, note)}
    replace(artifact, folder=folder, **changes).write_manifest()
