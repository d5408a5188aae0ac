"""A worker whose runtimes are at fault: what runs is ONNX Runtime, until it crashes, hangs, eats memory or is wrong."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from isorun.bench import subject, worker
from isorun.runtimes import all_runtimes


def crash(outputs: dict[str, Any]) -> None:
    ctypes.string_at(0)


def hang(outputs: dict[str, Any]) -> None:
    time.sleep(1000)


def eat(outputs: dict[str, Any]) -> None:
    hoard = []
    while True:
        hoard.append(np.ones(1 << 24))


def falsify(outputs: dict[str, Any]) -> None:
    for array in outputs.values():
        array *= 1.001


FAULTS: dict[str, Callable[[dict[str, Any]], None]] = {"crash": crash, "hang": hang, "eat": eat, "falsify": falsify}


class Faulty:
    """ONNX Runtime on the CPU, with a fault in what comes out."""

    def __init__(self, name: str) -> None:
        self.name = name

    def missing(self) -> str | None:
        return all_runtimes()["ort-cpu"].missing()

    def prepare(self, artifact: Any, threads: int, *, optimise: bool = True) -> Any:
        session = all_runtimes()["ort-cpu"].prepare(artifact, threads)
        fetch = session.fetch

        def faulty(raw: Any) -> dict[str, Any]:
            outputs: dict[str, Any] = fetch(raw)
            FAULTS[self.name](outputs)
            return outputs

        session.fetch = faulty  # type: ignore[method-assign]
        return session


def runtimes() -> dict[str, Any]:
    return {**all_runtimes(), **{name: Faulty(name) for name in FAULTS}}


if __name__ == "__main__":
    subject.all_runtimes = runtimes
    worker.main()
