"""What there is: models, runtimes and suites, as rows for a table or for JSON."""

from __future__ import annotations

from typing import Any

from .runtimes import all_runtimes


def models() -> list[dict[str, Any]]:
    """Every preset with its axes and its parameters at the published size."""
    from .models.cost import parameters
    from .models.presets import PRESETS

    return [
        {
            "model": name,
            "topology": config.topology,
            "mixer": _specs(config.mixer),
            "position": _spec(config.position),
            "norm": _spec(config.norm),
            "ffn": _specs(config.ffn),
            "residual": config.residual,
            "parameters": parameters(config),
            "source": config.source,
        }
        for name, config in PRESETS.items()
    ]


def runtimes() -> list[dict[str, Any]]:
    """Every runtime, and for one that cannot run here the reason and what to install."""
    reasons = {name: runtime.missing() for name, runtime in all_runtimes().items()}
    return [{"runtime": name, "available": reason is None, "reason": reason or ""} for name, reason in reasons.items()]


def suites() -> list[dict[str, Any]]:
    """Every suite that comes with the package, and what it measures."""
    from .bench.suite import load, names

    suites = [load(name) for name in names()]
    return [
        {
            "suite": suite.name,
            "size": suite.size,
            "models": ", ".join(suite.models),
            "runtimes": ", ".join(suite.runtimes),
            "seq": ", ".join(map(str, suite.seq)),
            "past": ", ".join(map(str, suite.past)),
            "budget_s": suite.budget_s,
        }
        for suite in suites
    ]


def _specs(specs: Any) -> str:
    """One spec, or those of a cycle over the layers, each once."""
    return " / ".join(dict.fromkeys(map(_spec, specs if isinstance(specs, tuple) else (specs,))))


def _spec(spec: Any) -> str:
    """A spec without the options that are at their default: "Softmax(kv_heads=8)"."""
    from dataclasses import MISSING, fields

    given = [
        f"{field.name}={getattr(spec, field.name)!r}"
        for field in fields(spec)
        if field.default is MISSING or getattr(spec, field.name) != field.default
    ]
    return f"{type(spec).__name__}({', '.join(given)})"
