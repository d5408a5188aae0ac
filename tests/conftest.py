"""What many tests share: the presets exported at `tiny`, once a session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from isorun.export.artifact import ExportedModel
from isorun.export.cache import export
from isorun.export.source import Source
from isorun.models.phases import phases
from isorun.models.presets import PRESETS

SIX = ("transformer-base", "bert-base", "gpt2", "llama3-8b", "mistral-7b", "lstm")
# One preset for each further mechanism, in the phase that holds the other: experts; sandwich norms, soft-caps and heads
# of their own size; parallel layers with norms that do not shift; a recurrence without gates.
MECHANISMS = ("mixtral-8x7b", "gemma2-2b", "palm-8b", "rnn")
GRAPHS = [(name, phase) for name in SIX for phase in phases(PRESETS[name])] + [(name, "step") for name in MECHANISMS]

Exported = Callable[[str, str], ExportedModel]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Exports of the tests, and of the processes that they start, stay out of the user's cache.

    Processes among which the tests are shared out have folders in one folder, and one cache.
    """
    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISORUN_CACHE", str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny models gain nothing from threads, and on a shared machine they lose much."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """`exported(preset, phase)`: the artifact of a preset at `tiny`, exported when it is first asked for."""
    root: Path = tmp_path_factory.mktemp("exported")

    @cache
    def get(name: str, phase: str) -> ExportedModel:
        artifact, _ = export(Source("preset", name, "tiny"), phase, root / f"{name}-{phase}")
        return artifact

    return get
