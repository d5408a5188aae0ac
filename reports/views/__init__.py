"""Views, one a file: each has `view(run) -> Section | None` and an `ORDER`; the folder is the list of them."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ..document import View


def _collect() -> tuple[View, ...]:
    modules = [import_module(f".{found.name}", __name__) for found in pkgutil.iter_modules(__path__)]
    return tuple(module.view for module in sorted(modules, key=lambda module: (module.ORDER, module.__name__)))


VIEWS: tuple[View, ...] = _collect()
