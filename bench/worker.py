"""One process that exports, computes truth, or runs one exported model on one runtime, a request a line.

Requests and answers are JSON lines on stdin and stdout. Whatever libraries print goes to stderr. Only the handlers that
need torch import it: the process that times ONNX Runtime never does.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..export.artifact import ArtifactError, ExportedModel
from ..export.source import SourceError
from ..runtimes import all_runtimes
from ..runtimes.base import RuntimeFailure, Unsuited
from .environment import versions
from .evaluation import Evaluation, check_file
from .subject import Subject


def export(folder: str, source: dict[str, Any], phase: str, dtype: str) -> dict[str, Any]:
    """Export a source model into a folder."""
    from . import truth

    return truth.export_model(folder, source, phase, dtype)


def same_function(folder: str) -> dict[str, Any]:
    """Is the graph the function of its source? Both in float64."""
    from . import truth

    return truth.same_function(folder)


def write_truth(folder: str, sizes: dict[str, int], file: str) -> dict[str, Any]:
    """Outputs in float64, with the rounding error of torch in the export's dtype, into a file."""
    from . import truth

    return truth.write(folder, sizes, file)


def walk(**arguments: Any) -> dict[str, Any]:
    """A graph and its source side by side in float64, value by value."""
    from .validate.walk import answer

    return answer(**arguments)


def costs(folder: str, shapes: list[dict[str, int]]) -> dict[str, Any]:
    """What a graph computes and moves at each of several sizes."""
    from .graph_cost import GraphCost

    graph = GraphCost(ExportedModel.open(Path(folder)).model_path)
    return {"costs": [graph.at(sizes).totals() for sizes in shapes]}


def about(runtimes: list[str]) -> dict[str, Any]:
    """What this environment has: the versions of its packages, and why which of some runtimes cannot run."""
    known = all_runtimes()
    reasons = {name: known[name].missing() if name in known else f"{name} is not known there" for name in runtimes}
    return {"versions": versions(), "missing": {name: reason for name, reason in reasons.items() if reason}}


HANDLERS: dict[str, Callable[..., dict[str, Any]]] = {
    "about": about,
    "check": check_file,
    "costs": costs,
    "export": export,
    "same_function": same_function,
    "truth": write_truth,
    "walk": walk,
}


class Worker:
    """The state between requests: the subject that is timed, or the model that is evaluated, if one is loaded."""

    def __init__(self) -> None:
        self.subject: Subject | None = None
        self.evaluation: Evaluation | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Handle one request; a failure becomes an answer with its reason."""
        op = request.pop("op")
        try:
            if op == "load":
                self.subject = Subject(**request, alone=True)
                return {"prepare_s": self.subject.prepare_s}
            if op in ("stage", "block", "facts"):
                if self.subject is None:
                    return {"error": f"{op}: nothing is loaded"}
                result: dict[str, Any] = getattr(self.subject, op)(**request)
                return result
            if op == "open":
                self.evaluation = Evaluation(**request)
                return {}
            if op == "evaluate":
                if self.evaluation is None:
                    return {"error": f"{op}: nothing is loaded"}
                return self.evaluation.evaluate(**request)
            return HANDLERS[op](**request)
        except Unsuited as error:
            return {"error": str(error), "unsuited": True}
        except (RuntimeFailure, ArtifactError, SourceError, MemoryError) as error:
            return {"error": str(error) or type(error).__name__}
        except Exception as error:  # the runner must get a reason, whatever a library raised
            return {"error": f"{op}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def main() -> None:
    """Serve until stdin ends, which it does when the runner is gone."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library that prints must not break the protocol
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    worker = Worker()
    while True:
        channel.write(json.dumps(worker.answer(json.loads(requests.get()))) + "\n")
        channel.flush()


def _receive(requests: queue.SimpleQueue[str]) -> None:
    """Pass requests on, and end the process with stdin, whatever it is at: a killed runner leaves nothing running."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
