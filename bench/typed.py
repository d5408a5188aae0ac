"""Whether a value read from a file has the type that a dataclass declares for it. Standard library only."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def wrong_field(record: Any) -> str | None:
    """The first field of a dataclass, those inside it included, whose value is of another type; None when all fit."""
    kind: type = type(record)
    hints = _hints(kind)
    for field in fields(record):
        value = getattr(record, field.name)
        if not fits(value, hints[field.name]):
            return f"{field.name} is {value!r:.80}"
        for part in value if isinstance(value, tuple) else (value,):
            if is_dataclass(part) and not isinstance(part, type) and (inner := wrong_field(part)):
                return f"{field.name}.{inner}"
    return None


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; a whole number may stand for a fractional one, a truth value may not."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, argument) for argument in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(item, arguments[0]) for item in value)
    if origin is not None and issubclass(origin, Mapping):
        key, item = arguments
        return isinstance(value, Mapping) and all(fits(k, key) and fits(v, item) for k, v in value.items())
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, types.NoneType if hint is None else hint)
