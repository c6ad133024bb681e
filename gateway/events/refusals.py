"""Records of refused events, so that the reason can be queried later.

A flood of refused events must not slow down accepted ones, so most of it is only counted. Between
two flushes a few records are kept for each project and reason. A device that was refused once can
therefore be found next to one that is refused a thousand times a second.
"""

from __future__ import annotations

import collections
import hashlib
import logging
from pathlib import Path

from fieldbrook.core import clock
from fieldbrook.core.errors import NodeError, ProjectNotFoundError, StoreError
from fieldbrook.gateway.channel import project_name
from fieldbrook.storage.project.refused import Refusal, RefusedRing
from fieldbrook.storage.project.refused import Refusals as Chunk

log = logging.getLogger(__name__)

FLUSH_S = 1.0
KEPT = 400  # records between two flushes
KEPT_OF_A_KIND = 40  # records of one project with one reason
KEPT_OF_A_PUBLISHER = 10  # of these, records of one publisher
_TEXT_LIMIT = 128
_REASON_LIMIT = 256


class Refusals:
    """Collects the refused events of one gateway and writes them to its ring at each flush."""

    def __init__(self, folder: Path, part: str, source: str) -> None:
        """Create the collection; no file is opened before the first flush.

        `folder` is the node's data folder; `source` says how events reach this gateway.
        """
        self._folder, self._part, self._source = folder, part, source
        self._ring: RefusedRing | None = None
        self._kept: dict[bool, list[Refusal]] = {True: [], False: []}
        self._more: dict[bool, int] = {True: 0, False: 0}
        self._kinds: collections.Counter[tuple[str, ...]] = collections.Counter()

    def note(
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
                error.desc[:_REASON_LIMIT],
                len(body),
                hashlib.sha256(body).hexdigest()[:32],
            )
        )

    def flush(self) -> None:
        """Write the collected records.

        Records that cannot be written are dropped; a full disk is reported elsewhere.
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
