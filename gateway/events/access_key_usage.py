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
_REMEMBERED = 10_000


class KeyUse:
    """Collects the access keys used at one gateway; call it from the loop's thread."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._noted: dict[int, int] = {}
        self._due: dict[int, int] = {}
        self._telling: asyncio.Task[None] | None = None

    def note(self, key: AccessKey, now_ms: int) -> None:
        """Record that a key was used at `now_ms` (Unix milliseconds)."""
        last = max(key.last_used, self._noted.get(key.access_key_id, 0))
        if now_ms - last < INTERVAL_MS:
            return
        if len(self._noted) >= _REMEMBERED:
            self._noted.clear()
        self._noted[key.access_key_id] = self._due[key.access_key_id] = now_ms
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._due:
                due, self._due = self._due, {}
                await self._registry.call("record_access_key_use", used=due)
        except NodeError as error:
            log.info("the last-used times of access keys were not stored: %s", error)
        finally:
            self._telling = None
