"""Last-used times of access keys, reported to the registry in batches.

A request must not cost an fsync. Each key is therefore reported at most once a minute, together
with other keys, and no request waits for the report.
"""

from __future__ import annotations

import asyncio
import logging

from fieldbrook.core.errors import NodeError
from fieldbrook.core.model import AccessKey
from fieldbrook.storage.registry.service import RegistryClient

log = logging.getLogger(__name__)

INTERVAL_MS = 60_000
_KEYS_LIMIT = 10_000


class AccessKeyUsage:
    """Collects the access keys that were used at one gateway; call it in the event loop's
    thread."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._last_reported: dict[int, int] = {}
        self._pending: dict[int, int] = {}
        self._report_task: asyncio.Task[None] | None = None

    def record(self, key: AccessKey, now_ms: int) -> None:
        """Record that a key was used at `now_ms` (Unix milliseconds)."""
        last = max(key.last_used, self._last_reported.get(key.access_key_id, 0))
        if now_ms - last < INTERVAL_MS:
            return
        if len(self._last_reported) >= _KEYS_LIMIT:
            self._last_reported.clear()
        self._last_reported[key.access_key_id] = self._pending[key.access_key_id] = now_ms
        if self._report_task is None:
            self._report_task = asyncio.get_running_loop().create_task(self._report())

    async def _report(self) -> None:
        try:
            while self._pending:
                pending, self._pending = self._pending, {}
                await self._registry.call("record_access_key_use", used=pending)
        except NodeError as error:
            log.info("the last-used times of access keys were not stored: %s", error)
        finally:
            self._report_task = None
