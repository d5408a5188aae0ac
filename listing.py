"""What there is: models, runtimes and suites, as rows for a table or for JSON."""

from __future__ import annotations

from collections.abc import Iterator
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
            "models": ", ".join(suite.models) if len(suite.models) < 10 else f"{len(suite.models)} presets",
            "runtimes": ", ".join(suite.runtimes),
            "seq": ", ".join(map(str, suite.seq)),
            "past": ", ".join(map(str, suite.past)),
            "budget_s": suite.budget_s,
        }
        for suite in suites
    ]


def _specs(specs: Any) -> str:
    """One spec, or those of a cycle over the layers, each once; of more than two the first and how many follow."""
    first, *more = dict.fromkeys(map(_spec, specs if isinstance(specs, tuple) else (specs,)))
    return f"{first} and {len(more)} more" if len(more) > 1 else " / ".join((first, *more))


def _spec(spec: Any) -> str:
    """A spec without the options that are at their default: "Softmax kv_heads=8", "MLP gelu, 3072"."""
    return f"{type(spec).__name__} {', '.join(_options(spec))}".rstrip()


def _options(spec: Any) -> Iterator[str]:
    """The values that were given, by name except where the class takes them in order."""
    from dataclasses import MISSING, fields

    for field in fields(spec):
        value = getattr(spec, field.name)
        if field.default is MISSING and not field.kw_only:
            yield _value(value)
        elif field.default is MISSING or value != field.default:
            yield f"{field.name}={_value(value)}"


def _value(value: Any) -> str:
    """A spec inside a spec stands in brackets."""
    from dataclasses import is_dataclass

    if is_dataclass(value):
        return f"{type(value).__name__}({', '.join(_options(value))})"
    return f"{value:g}" if isinstance(value, float) else str(value)
