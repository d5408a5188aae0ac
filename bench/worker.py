"""One process that exports, computes truth, or runs one exported model on one runtime, a request a line.

Requests and answers are JSON lines on stdin and stdout. Whatever libraries print goes to stderr. Only the handlers that
need torch import it: the process that times ONNX Runtime never does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from ..export.artifact import ArtifactError
from ..export.source import SourceError
from ..runtimes.base import RuntimeFailure
from .evaluation import Evaluation, check_file
from .subject import Subject


def export(folder: str, source: dict[str, Any], phase: str) -> dict[str, Any]:
    """Export a source model into a folder."""
    from . import truth

    return truth.export_model(folder, source, phase)


def same_function(folder: str) -> dict[str, Any]:
    """Is the graph the function of its source? Both in float64."""
    from . import truth

    return truth.same_function(folder)


def write_truth(folder: str, sizes: dict[str, int], file: str) -> dict[str, Any]:
    """Outputs in float64, with the rounding error of torch in the export's dtype, into a file."""
    from . import truth

    return truth.write(folder, sizes, file)


HANDLERS: dict[str, Callable[..., dict[str, Any]]] = {
    "check": check_file,
    "export": export,
    "same_function": same_function,
    "truth": write_truth,
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
                self.subject = Subject(**request)
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
        except (RuntimeFailure, ArtifactError, SourceError, MemoryError) as error:
            return {"error": str(error) or type(error).__name__}
        except Exception as error:  # the runner must get a reason, whatever a library raised
            return {"error": f"{op}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def main() -> None:
    """Serve until stdin ends, which it does when the runner is gone."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library that prints must not break the protocol
    worker = Worker()
    for line in sys.stdin:
        channel.write(json.dumps(worker.answer(json.loads(line))) + "\n")
        channel.flush()


if __name__ == "__main__":
    main()
