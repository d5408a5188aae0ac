"""Numbers as people read them: three significant digits, units at the very end, an interval in brackets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..bench.timing import Interval

_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
_ROUNDS_UP = 0.9995  # at three digits 999.6 µs reads as 1.00 ms


def number(value: float, digits: int = 3) -> str:
    """A plain number at `digits` significant digits: 0.0123, 4.50, 1,230, 3.10e-9, ∞."""
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    if not 1e-3 <= abs(value) < 1e6:
        return f"{mantissa}e{int(power)}"
    return f"{value:,.{max(0, digits - 1 - int(power))}f}"


def duration(ns: float, interval: Interval | None = None) -> str:
    """Nanoseconds in the unit that suits them, which is that of the upper end for none: `12.3 ms (12.1–12.6)`."""
    size = interval.high if ns == 0 and interval and math.isfinite(interval.high) else abs(ns)
    factor, unit = next((pair for pair in _TIMES if size >= pair[0] * _ROUNDS_UP), _TIMES[-1])
    return f"{number(ns / factor)} {unit}{_ends(interval, lambda end: number(end / factor))}"


def elapsed(seconds: float) -> str:
    """The length of a run: `4.2 s`, `12 min 5 s`, `3 h 20 min`."""
    if not math.isfinite(seconds):
        return number(seconds)
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def memory(count: float) -> str:
    """Bytes in binary units: `15.6 GiB`."""
    factor, unit = next((pair for pair in _BYTES if count >= pair[0]), _BYTES[-1])
    return f"{count:,.0f} B" if factor == 1 else f"{number(count / factor)} {unit}"


def ratio(value: float, interval: Interval | None = None) -> str:
    """A speed-up: `1.34× (1.30–1.38)`."""
    return f"{_two(value)}×{_ends(interval, _two)}"


def exponent(value: float, interval: Interval | None = None) -> str:
    """The exponent of a power law, always two decimals: `1.02 (0.98–1.06)`."""
    return f"{_hundredths(value)}{_ends(interval, _hundredths)}"


def length(value: float, interval: Interval | None = None) -> str:
    """A number of tokens that was computed and need not be whole: `1,480 (1,210–1,890)`."""
    return f"{number(value)}{_ends(interval, number)}"


def moment(text: str) -> str:
    """A point in time as people write it, `2026-03-14 09:26 UTC`; what is no ISO 8601 is left as it is."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return text


def span(values: Sequence[int]) -> str:
    """The range of some lengths: `64–1024`, or `64`."""
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def plural(count: int, noun: str) -> str:
    """`1 row`, `3 rows`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listing(items: Sequence[str]) -> str:
    """Names in a sentence: `a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def plain(value: Any) -> str:
    """Anything that a header may hold, as text; nothing for what is absent."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(item)}".strip() for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(plain(item) for item in value)
    return str(value)


def _ends(interval: Interval | None, end: Callable[[float], str]) -> str:
    if interval is None:
        return ""
    if interval.low <= 0 and math.isinf(interval.high):
        return " (no interval)"  # too few blocks to say anything
    between = "–" if interval.low >= 0 else " to "
    return f" ({end(interval.low)}{between}{end(interval.high)})"


def _hundredths(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # adding zero turns -0.00 into 0.00


def _two(value: float) -> str:
    """Two decimals near 1, three significant digits elsewhere."""
    return f"{value:.2f}" if 0.1 <= value < 10 else number(value)
