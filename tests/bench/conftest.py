"""Workers without processes, for the tests of the loop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from isorun.bench import measure, prepare

from .fake_worker import FakeWorker


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeWorker]]:
    for module in (measure, prepare):
        monkeypatch.setattr(module, "Worker", FakeWorker)
    FakeWorker.behaviours, FakeWorker.exports, FakeWorker.open_workers, FakeWorker.asked = {}, {}, [], []
    yield FakeWorker
    assert FakeWorker.open_workers == [], "every worker is closed, whatever happened"
