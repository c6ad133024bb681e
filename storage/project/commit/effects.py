"""The effects of the running batch, and the log rows and history records that wait for a batch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from fieldbrook.core import clock
from fieldbrook.storage.project.commit.batch import Batch, Recorded
from fieldbrook.storage.project.dead_letters import DeadLetter
from fieldbrook.storage.project.deduplication import Outcome
from fieldbrook.storage.project.history.chunks import GATHERED_EVENTS, Payloads
from fieldbrook.storage.project.history.records import RecordTuple
from fieldbrook.storage.project.history.tables import PAYLOAD_LIMIT
from fieldbrook.storage.project.history.traces import EventTrace
from fieldbrook.storage.project.outbox import OutboxEntry, Removal
from fieldbrook.storage.project.rows import LogRow, MetricRow

_LOG_FLUSH_S = 0.2
_LOG_PENDING_LIMIT = 4_096


class Effects:
    """Collects the effects of a batch until its commit.

    `overlay` has the key-value writes (None deletes a key), `sent` the outbox entries, `metrics`
    the rows of metrics, `dead_letters` new dead letters and `resolved` the numbers of dead letters
    to delete. For deduplication, `outcomes` maps the digest of each handled event to its results,
    and `deliveries` has the names of the broker's deliveries. `removed` has the outbox entries that
    have left the node. They do not belong to an event, so they are kept when the effects are
    dropped.

    Log rows and history records are not effects: if a batch has nothing else, it is not committed
    until there are enough of them or enough time has passed.
    """

    def __init__(self, *, keeps_payloads: bool) -> None:
        self._keeps_payloads = keeps_payloads
        self._clear_effects()
        self.removed: list[Removal] = []
        self._history_records: list[RecordTuple] = []
        self._history_payloads: list[bytes] = []
        self._history_traces: list[EventTrace] = []
        self._rows: list[LogRow] = []
        self._rows_since = 0.0

    def log(self, row: LogRow) -> None:
        """Keep a log row for the next commit or flush."""
        if not self._rows and not self._history_records:
            self._rows_since = time.monotonic()
        self._rows.append(row)

    def record(
        self,
        events: Sequence[RecordTuple],
        payloads: Iterable[bytes] = (),
        traces: Sequence[EventTrace] = (),
    ) -> None:
        """Keep history records for the next commit or flush.

        `payloads` belong to `events` in the same order. An event whose payload is not kept, because
        it is above `PAYLOAD_LIMIT` for example, cannot be replayed. The places of `traces` are
        indexes of `events`.
        """
        for trace in traces:
            place = len(self._history_records) + trace.place
            self._history_traces.append(replace(trace, place=place))
        if not self._rows and not self._history_records:
            self._rows_since = time.monotonic()
        if self._keeps_payloads:
            # Earlier callers may have given no payloads: fill up to one per earlier record.
            missing = len(self._history_records) - len(self._history_payloads)
            self._history_payloads.extend([b""] * missing)
            self._history_payloads.extend(
                [payload if len(payload) <= PAYLOAD_LIMIT else b"" for payload in payloads]
            )
        self._history_records.extend(events)

    def _clear_effects(self) -> None:
        self.overlay: dict[bytes, bytes | None] = {}
        self.sent: list[OutboxEntry] = []
        self.metrics: list[MetricRow] = []
        self.dead_letters: list[DeadLetter] = []
        self.resolved: list[int] = []
        self.outcomes: dict[bytes, Outcome] = {}
        self.deliveries: dict[str, None] = {}

    def _has_effects(self) -> bool:
        return bool(
            self.overlay
            or self.sent
            or self.metrics
            or self.dead_letters
            or self.resolved
            or self.outcomes
            or self.deliveries
            or self.removed
        )

    def _rows_due(self) -> bool:
        return bool(self._rows or self._history_records) and (
            len(self._rows) >= _LOG_PENDING_LIMIT
            or len(self._history_records) >= GATHERED_EVENTS
            or time.monotonic() - self._rows_since >= _LOG_FLUSH_S
        )

    def _take_batch(self, number: int = 0, *, rows_only: bool = False) -> Batch:
        """Move the effects and rows into a batch, and start with empty ones.

        Args:
            number: the number of a batch that is staged for SQL.
            rows_only: leave the effects to the batch that is still running.
        """
        recorded = [Recorded(self._history_records)] if self._history_records else []
        payloads = [Payloads(self._history_payloads)] if recorded and self._keeps_payloads else []
        batch = Batch(
            number,
            [] if rows_only else list(self.overlay.items()),
            [] if rows_only else self.sent,
            [] if rows_only else self.metrics,
            [] if rows_only else self.dead_letters,
            [] if rows_only else self.resolved,
            recorded,
            self._rows,
            [] if rows_only else list(self.outcomes.items()),
            [] if rows_only else list(self.deliveries),
            payloads,
            self._history_traces,
            clock.now_ms(),
            [] if rows_only else self.removed,
        )
        if not rows_only:
            self._clear_effects()
            self.removed = []
        self._history_records, self._history_payloads = [], []
        self._history_traces, self._rows = [], []
        return batch
