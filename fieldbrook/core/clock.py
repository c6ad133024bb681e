"""The clocks, as functions that a test can replace."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo

Clock = Callable[[], int]


def now_ms() -> int:
    """Return the Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def unix_ms(moment: datetime) -> int:
    """Convert a datetime with a time zone to Unix milliseconds."""
    return round(moment.timestamp() * 1000)


def rfc3339(ms: int) -> str:
    """Format Unix milliseconds as RFC 3339 in UTC with milliseconds, e.g.
    `2026-11-21T06:31:00.123Z`."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def zone_of(name: str) -> tzinfo:
    """Look up a time zone by name, e.g. `Europe/Berlin`; UTC needs no zone data on the machine.

    Raises:
        ValueError: this machine has no zone of that name.
    """
    if name.upper() == "UTC":
        return UTC
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):
        raise ValueError("must be UTC or a zone this machine knows, e.g. Europe/Berlin") from None
