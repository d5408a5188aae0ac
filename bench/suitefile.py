"""The TOML file of a suite: found by name or path, its keys known and its values of the right type."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "suites"
TEXTS, NUMBER, LENGTHS = "a list of texts", "a positive number", 'lengths, as "64:1024:2x" or [64, 128]'
ROWS = "a whole number of at least 1, or several, as [1, 2, 8]"
MOST = 1000  # numbers in a list: beyond it a range was mistyped
KEYS = {
    "models": TEXTS,
    "runtimes": TEXTS,
    "dtypes": TEXTS,
    "size": "a text",
    "batch": ROWS,
    "seq": LENGTHS,
    "past": LENGTHS,
    "budget_s": NUMBER,
    "limited": "true or false",
}
REQUIRED = ("models", "runtimes")


class SuiteError(ValueError):
    """A suite, or a choice on the command line, that cannot be run; the message names what and why."""


def names() -> tuple[str, ...]:
    """The suites that come with the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def read(name: str) -> dict[str, Any]:
    """The content of a suite: one of `names()`, or the path of a file that ends in .toml; its stem is its name.

    Raises:
        SuiteError: no such suite or file, no TOML, an unknown or missing key, or a value of another type.
    """
    path = Path(name)
    if path.suffix != ".toml":
        known("suite", [name], names())
        path = FOLDER / f"{name}.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"not TOML: {error}"
        raise SuiteError(f"suite {name}: {reason}") from None
    known("key", content, KEYS, where=f"suite {name}")
    for key in REQUIRED:
        if key not in content:
            raise SuiteError(f"suite {name}: {key} is missing; it is {KEYS[key]}")
    for key, value in content.items():
        if not _fits(key, value):
            raise SuiteError(f"suite {name}: {key} = {value!r} should be {KEYS[key]}")
    return {"name": path.stem, **content}


def known(kind: str, given: Iterable[str], choices: Collection[str], where: str = "") -> None:
    """Refuse a name that is not among the choices, with the near matches.

    Raises:
        SuiteError: the first unknown name.
    """
    for name in given:
        if name not in choices:
            near = get_close_matches(name, list(choices), n=3, cutoff=0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(choices)}"
            raise SuiteError(f"{where + ': ' if where else ''}unknown {kind} {name!r}; {hint}")


def lengths(given: str | int | list[int], least: int = 1, what: str = "lengths") -> tuple[int, ...]:
    """Lengths, or sizes of `what` else, from "64,100", "128:8192:2x" (doubling), "128:1024:+128" (in steps), or a list.

    Raises:
        SuiteError: not of these forms, none in it, more than `MOST`, or one below `least`.
    """
    try:
        found = _parse(given) if isinstance(given, str) else tuple(given) if isinstance(given, list) else (given,)
    except ValueError:
        raise SuiteError(f"{what} {given!r}: write 64,128 or 64:1024:2x or 64:1024:+64") from None
    if len(found) > MOST:
        raise SuiteError(f"{what} {given!r}: more than {MOST} numbers")
    if not found:
        raise SuiteError(f"{what} {given!r}: there is no number in it")
    if min(found) < least:
        raise SuiteError(f"{what} {given!r}: {min(found)} is below {least}")
    return tuple(sorted(set(found)))


def seconds(text: str) -> float:
    """Seconds from "90", "90s", "10m" or "1.5h".

    Raises:
        SuiteError: not of these forms, or not positive.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    time_s = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    if time_s <= 0:
        raise SuiteError(f"budget {text!r}: write 90s, 10m or 2h")
    return time_s


def _parse(text: str) -> tuple[int, ...]:
    if ":" not in text:
        return tuple(int(part) for part in text.split(","))
    low, high, step = text.split(":")
    return _range(int(low), int(high), step)


def _range(low: int, high: int, step: str) -> tuple[int, ...]:
    factor = int(step[:-1]) if step.endswith("x") else 1
    summand = int(step[1:]) if step.startswith("+") else 0
    if low < 1 or (factor < 2 and summand < 1):
        raise ValueError(step)
    found: list[int] = []
    while low <= high and len(found) <= MOST:
        found.append(low)
        low = low * factor + summand
    return tuple(found)


def _fits(key: str, value: Any) -> bool:
    """Whether a value has the type that its key wants; TOML's true is no number."""
    kind = KEYS[key]
    if kind == TEXTS:
        return isinstance(value, list) and bool(value) and all(isinstance(item, str) and item for item in value)
    if kind == ROWS and not isinstance(value, str | list):
        return _whole(value) and value >= 1
    if kind in (LENGTHS, ROWS):
        return isinstance(value, str) or (isinstance(value, list) and bool(value) and all(map(_whole, value)))
    if kind == NUMBER:
        return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    if key == "limited":
        return isinstance(value, bool)
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
