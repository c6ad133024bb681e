"""Durations in the notation of the interface: `10m`, `1h30m`, `1.5s`.

Source: interface document, 1.4 (Go's ParseDuration and Duration.String).
"""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS_MS = {
    "ns": Fraction(1, 1_000_000),
    "us": Fraction(1, 1_000),
    "µs": Fraction(1, 1_000),
    "μs": Fraction(1, 1_000),
    "ms": Fraction(1),
    "s": Fraction(1_000),
    "m": Fraction(60_000),
    "h": Fraction(3_600_000),
}
_LIMIT = 64
_PART = re.compile(r"([0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+\Z")


def parse_duration(text: str) -> int:
    """Parse a duration into whole milliseconds; a fraction of a millisecond is dropped.

    Raises:
        ValueError: the text is not a duration, e.g. no unit, negative, or too long.
    """
    if text == "0":
        return 0
    if len(text) > _LIMIT:
        raise ValueError(f"not a duration: longer than {_LIMIT} characters")
    if not _WHOLE.match(text):
        raise ValueError("not a duration: numbers with units, e.g. 90s, 10m or 1h30m")
    return int(sum(Fraction(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text)))


def format_duration(ms: int) -> str:
    """Format milliseconds as Go does, e.g. `10m0s`, `1h30m0s`, `1.5s`, `250ms`."""
    if ms == 0:
        return "0s"
    if ms < 1_000:
        return f"{ms}ms"
    minutes, rest = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds, thousandths = divmod(rest, 1_000)
    fraction = f".{thousandths:03d}".rstrip("0") if thousandths else ""
    text = f"{seconds}{fraction}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
