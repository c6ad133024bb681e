"""Records of refused events, so that the reason can be queried later.

A flood of refused events must not slow down accepted ones, so most of it is only counted. Between
two flushes a few records are kept for each project and reason. Therefore a device that was refused
once can be found, even if another one is refused a thousand times a second.
"""

from __future__ import annotations

import collections
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fieldbrook.core import clock
from fieldbrook.core.errors import (
    NodeError,
    ProjectNotFoundError,
    StoreError,
    TooManyRequestsError,
    UnavailableError,
)
from fieldbrook.gateway.channel import project_name
from fieldbrook.gateway.replies import EventReply, error_json
from fieldbrook.observability import metrics
from fieldbrook.storage.project.refused import Refusal, RefusedRing
from fieldbrook.storage.project.refused import Refusals as Chunk

log = logging.getLogger(__name__)

KEPT = 400  # records between two flushes
_REASON_FIELDS = 10
KEPT_OF_A_KIND = 40  # records of one project with one reason
KEPT_OF_A_PUBLISHER = 10  # of these, records of one publisher
_TEXT_LIMIT = 128
_REASON_LIMIT = 256

TEMPORARY = (TooManyRequestsError, UnavailableError, StoreError)
"""Temporary errors: after one of these errors the broker keeps the event and sends it again."""


class Refusals:
    """Collects the refused events of one gateway and writes them to its ring at each flush."""

    def __init__(self, folder: Path, part: str, source: str) -> None:
        """Create the collection; no file is opened before the first flush.

        `folder` is the node's data folder; `source` is the way by which events reach this gateway.
        """
        self._folder, self._part, self._source = folder, part, source
        self._ring: RefusedRing | None = None
        self._kept: dict[bool, list[Refusal]] = {True: [], False: []}
        self._more: dict[bool, int] = {True: 0, False: 0}
        self._kinds: collections.Counter[tuple[str, ...]] = collections.Counter()

    def record(
        self,
        error: NodeError,
        event_id: str,
        channel: str,
        *,
        publisher: str = "",
        event_type: str = "",
        body: bytes = b"",
    ) -> None:
        """Record a refused event; `body` is the part of the request that was read."""
        known = not isinstance(error, ProjectNotFoundError)
        kept = self._kept[known]
        # Clients can invent any number of unknown project names, so all of these count as one.
        kind = (channel if known else "", error.key)
        own = (*kind, publisher[:_TEXT_LIMIT])
        if (
            len(kept) >= KEPT
            or self._kinds[kind] >= KEPT_OF_A_KIND
            or (publisher and self._kinds[own] >= KEPT_OF_A_PUBLISHER)
        ):
            self._more[known] += 1
            return
        self._kinds[kind] += 1
        self._kinds[own] += 1
        kept.append(
            Refusal(
                clock.now_ms(),
                event_id[: 2 * _TEXT_LIMIT],
                project_name(channel)[:_TEXT_LIMIT],
                publisher[:_TEXT_LIMIT],
                event_type[:_TEXT_LIMIT],
                self._source,
                error.key,
                _reason(error)[:_REASON_LIMIT],
                len(body),
                hashlib.sha256(body).hexdigest()[:32],
            )
        )

    def flush(self) -> None:
        """Write the collected records.

        Records that cannot be written are dropped; the health conditions report a full disk.
        """
        self._kinds.clear()
        for known in (True, False):
            kept, more = self._kept[known], self._more[known]
            if not kept and not more:
                continue
            self._kept[known], self._more[known] = [], 0
            try:
                if self._ring is None:
                    self._ring = RefusedRing(self._folder, self._part)
                self._ring.write(Chunk(kept, more), known=known)
            except StoreError as error:
                log.debug("refused events were not kept: %s", error)

    def close(self) -> None:
        """Write the remaining records and close the ring."""
        self.flush()
        if self._ring is not None:
            self._ring.close()
            self._ring = None


def _reason(error: NodeError) -> str:
    """Return the text of an error, or its malformed fields if it names any."""
    fields = (error.fields() or ())[:_REASON_FIELDS]
    return error.desc or "; ".join(f"{one.field}: {one.msg}" for one in fields)


class Refuser:
    """Refuses events: records the reason, and answers with the 8-key error as the body."""

    def __init__(self, version: str, new_id: Callable[[], str], records: Refusals | None) -> None:
        """Create a refuser; with None as `records`, no reasons are stored."""
        self._version = version
        self._new_id = new_id
        self._records = records

    def refuse(
        self,
        error: NodeError,
        event_id: str,
        channel: str,
        *,
        publisher: str = "",
        event_type: str = "",
        body: bytes = b"",
        resend: bool = False,
    ) -> EventReply:
        """Record a refused event and return its answer.

        A temporary error of an event that will be sent again (`resend`) is not recorded.
        """
        event_id = event_id or self._new_id()
        if not (resend and isinstance(error, TEMPORARY)):
            self.record(
                error, event_id, channel, publisher=publisher, event_type=event_type, body=body
            )
        return self.reply(error, event_id)

    def record(self, error: NodeError, event_id: str, channel: str, **about: Any) -> None:
        """Count a refused event and store its reason; see `Refusals.record`."""
        metrics.refused(error.key)
        if self._records is not None:
            self._records.record(error, event_id, channel, **about)

    def reply(self, error: NodeError, event_id: str) -> EventReply:
        """Return the answer to a refused event."""
        body = error_json(error, self._version)
        return EventReply(error.status, body, event_id or self._new_id(), error)
