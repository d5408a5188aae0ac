"""The JSON Schema (draft 2020-12) of `isorun report --format json`; published as docs/report.schema.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from ..bench.growth import Read
from .columns import COLUMNS, IDENTITY
from .data import JSON_SCHEMA
from .document import SIGNS
from .trend import WORDS

_TEXT = {"type": "string"}
_NUMBER = {"type": ["number", "null"]}
_ENDS = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}
_CASE = {"model": _TEXT, "size": _TEXT, "phase": _TEXT, "dtype": _TEXT}
_LAW_NS = ("c0_ns", "c1_ns", "c2_ns")


def schema() -> dict[str, Any]:
    """The schema as JSON data."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "isorun report",
        "description": "Null stands where a number is not known, not finite, or must not be shown.",
        **_object(
            {
                "schema": {"const": JSON_SCHEMA},
                "header": {"type": "object", "description": "run.json as it was written"},
                "answers": _list(_answer()),
                "measurements": _list(_measurement()),
                "laws": _list(_law()),
                "verdicts": _list(_verdict()),
                "problems": _list(_TEXT),
            }
        ),
    }


def _answer() -> dict[str, Any]:
    tones = {"enum": list(SIGNS)}
    texts = dict.fromkeys(("model", "question", "about", "answer", "detail"), _TEXT)
    return _object({**texts, "tone": tones})


def _measurement() -> dict[str, Any]:
    kinds = {"text": "string", "integer": "integer", "number": "number"}
    columns: dict[str, Any] = {}
    for column in COLUMNS:
        kind = kinds[column.kind]
        meaning = f"{column.text} ({column.unit})" if column.unit else column.text
        columns[column.name] = {"type": kind if column.name in IDENTITY else [kind, "null"], "description": meaning}
    columns["status"]["enum"] = ["ok", "skipped", "failed"]
    return _object(columns)


def _law() -> dict[str, Any]:
    """T(n) = c0 + c1·n + c2·n²."""
    return _object(
        {
            **_CASE,
            "batch": {"type": "integer"},
            "runtime": _TEXT,
            **dict.fromkeys(_LAW_NS, _NUMBER),
            **{f"{name}_interval": _ENDS for name in _LAW_NS},
            "exponent": _NUMBER,
            "exponent_interval": _ENDS,
            "exponent_from_n": {"type": "integer"},
            "exponent_to_n": {"type": "integer"},
            "exponent_over_all_n": _NUMBER,
            "theory_exponent": _NUMBER,
            "verdict": {"enum": list(WORDS)},
            "reason": _TEXT,
            "reads": {"type": ["string", "null"], "description": "what sparse attention reads"},
            "full_attention_exponent": _NUMBER,
            "growth_of": {"enum": [*get_args(Read), None]},
        }
    )


def _verdict() -> dict[str, Any]:
    status = {"enum": ["pass", "fail", "error"]}
    return _object({**_CASE, "check": _TEXT, "status": status, "distance": _NUMBER, "limit": _NUMBER, "detail": _TEXT})


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": dict(items)}
