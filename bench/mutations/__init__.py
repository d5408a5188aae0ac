"""Planted faults: each kind changes one thing in an exported graph, to prove that validation finds it."""

from .surgery import KINDS, Graph, apply, touched

__all__ = ["KINDS", "Graph", "apply", "kinds", "touched"]


def kinds() -> dict[str, str]:
    """Every kind of fault by name, with what it does; the files that define them are read on the first call."""
    from . import operators, recurrent, weights, wiring  # noqa: F401  (each registers its kinds)

    return {name: str(kind.__doc__) for name, kind in KINDS.items()}
