"""Views of lines of the applet log, for clients."""

from __future__ import annotations

from typing import Literal

import msgspec

from fieldbrook.core.clock import rfc3339
from fieldbrook.storage.project.rows import LogRow
from fieldbrook.wasm.module import abi

Level = Literal["panic", "fatal", "error", "warning", "warn", "info", "debug", "trace"]
"""A level of the applet log in requests. `warn` is an older name of `warning`; answers never
contain it."""


def level_number(level: Level) -> int:
    """Return the number of a level, as in the ABI: 0 is the most severe."""
    return abi.LEVEL_NAMES.index("warning" if level == "warn" else level)


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the applet log; `sequence` is its number where a list can be continued."""

    sequence: str | msgspec.UnsetType = msgspec.UNSET
    time: str = msgspec.field(name="logTime")
    level: str
    source: str = msgspec.field(name="src")
    applet_name: str = msgspec.field(name="appletName")
    instance_id: str = msgspec.field(name="instanceID")
    event_id: str | msgspec.UnsetType = msgspec.field(name="eventID", default=msgspec.UNSET)
    text: str = msgspec.field(name="msg")


def log_line(row: LogRow, sequence: int = 0) -> LogLine:
    """Make the view of a row; a `sequence` of 0 is left out."""
    return LogLine(
        sequence=str(sequence) if sequence else msgspec.UNSET,
        time=rfc3339(row.time_ms),
        level=abi.level_name(row.level),
        source=row.source,
        applet_name=row.applet_name,
        instance_id=str(row.instance_id),
        event_id=row.event_id or msgspec.UNSET,
        text=row.text,
    )
