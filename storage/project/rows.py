"""Rows that handlers write beside their effects: applet log lines and submitted metrics."""

from __future__ import annotations

import msgspec

from fieldbrook.storage.lmdb.rows import Numbered

LOGS, METRICS = b"applet_log", b"metrics"
LOG_ROWS_LIMIT = 100_000
METRIC_ROWS_LIMIT = 100_000


class LogRow(msgspec.Struct, array_like=True, frozen=True):
    """One line of an applet log. `time_ms` is Unix milliseconds, `level` a number of the ABI."""

    time_ms: int
    level: int
    source: str
    instance_id: int
    applet_name: str
    event_id: str
    text: str


class MetricRow(msgspec.Struct, array_like=True, frozen=True):
    """JSON that an applet submitted. `time_ms` is Unix milliseconds."""

    time_ms: int
    instance_id: int
    applet_name: str
    event_id: str
    value: str


NumberedRow = Numbered[LogRow]
