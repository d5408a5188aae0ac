"""Runtimes: one file each, collected from this folder by the `RUNTIMES` tuple that each defines."""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Runtime


def all_runtimes() -> "dict[str, Runtime]":
    """Every runtime that this package knows, by name. Nothing heavy is imported before one prepares a model."""
    modules = (import_module(f".{found.name}", __name__) for found in iter_modules(__path__))
    return {runtime.name: runtime for module in modules for runtime in getattr(module, "RUNTIMES", ())}
