"""isorun: the same Transformer on every ONNX runtime, with evidence.

Importing this package imports none of its parts: a process that measures ONNX Runtime must not get torch. The public
names below are loaded when they are first used.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "ModelConfig": ".models.config",
    "PRESETS": ".models.presets",
    "export": ".export.exporter",
    "ExportedModel": ".export.artifact",
    "all_runtimes": ".runtimes",
}

__all__ = ["PRESETS", "ExportedModel", "ModelConfig", "__version__", "all_runtimes", "export"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name], __name__), name)
