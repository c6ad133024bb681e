"""What the audit log is told of a request.

The first registry command of a request carries the request's row, so that both are one
write. What changed nothing in the registry, refusals above all, is told a little later, many
rows at a time. Refusals are told of callers who are known only: a stranger must not be able
to push the log's older rows out.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import urllib.parse
from typing import Any

import msgspec

from fieldbrook.core.clock import Clock
from fieldbrook.core.errors import NodeError
from fieldbrook.core.model import AccessKey, Account
from fieldbrook.storage.registry.audit import AuditRow
from fieldbrook.storage.registry.service import RegistryClient

log = logging.getLogger(__name__)

_PATH_LIMIT = 1_024
_WAITING_LIMIT = 1_000
_GATHERED_S = 0.2


class Trail:
    """One request: who, what, and whether the log has it already.

    Args:
        path: what follows the prefix, still percent-encoded.
        query: the query string; a token in it is left out.
    """

    def __init__(
        self, operation: str, method: str, path: str, query: str, peer: str, clock: Clock
    ) -> None:
        self.method = method
        self.written = False
        self._operation = operation
        self._path = _with_query(path, query)[:_PATH_LIMIT]
        self._peer = peer
        self._clock = clock
        self._account_id = 0
        self._account = ""
        self._key = ""

    @property
    def known(self) -> bool:
        """Whether it is known who calls."""
        return bool(self._account_id or self._account)

    def about(self, account: Account) -> None:
        """The caller is this account."""
        self._account_id, self._account = account.account_id, account.username

    def with_key(self, key: AccessKey) -> None:
        """The caller has this access key."""
        self._account_id, self._key = key.account_id, key.name

    def named(self, username: str) -> None:
        """The caller will be the account of this name."""
        self._account = username

    def row(self, status: int, error: str = "") -> AuditRow:
        """The row of the request, as it ended."""
        return AuditRow(
            time_ms=self._clock(),
            account_id=self._account_id,
            account=self._account,
            key=self._key,
            peer=self._peer,
            operation=self._operation,
            method=self.method,
            path=self._path,
            status=status,
            error=error,
        )


class AuditedRegistry:
    """The registry for one request: its first command that succeeds carries the row."""

    def __init__(self, registry: RegistryClient, trail: Trail) -> None:
        self._registry = registry
        self._trail = trail

    async def call(self, op: str, **args: Any) -> Any:
        """As `RegistryClient.call`."""
        if self._trail.written:
            return await self._registry.call(op, **args)
        row = self._trail.row(201 if self._trail.method == "POST" else 200)
        result = await self._registry.call(op, audit=msgspec.to_builtins(row), **args)
        self._trail.written = True
        return result


class AuditNotes:
    """Rows that no command carried, on their way to the log. Call it from the loop's thread."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._waiting: collections.deque[AuditRow] = collections.deque()
        self._telling: asyncio.Task[None] | None = None

    def ended(self, trail: Trail, status: int, error: str) -> None:
        """A request was answered."""
        refused = status >= 400
        if trail.method in ("GET", "HEAD") or (trail.written and not refused):
            return
        if refused and not trail.known:
            return
        if len(self._waiting) >= _WAITING_LIMIT:
            log.warning("the audit log misses a row: %d wait already", len(self._waiting))
            return
        self._waiting.append(trail.row(status, error))
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(_GATHERED_S)
                rows = [msgspec.to_builtins(row) for row in self._waiting]
                self._waiting.clear()
                await self._registry.call("note_audit", rows=rows)
        except NodeError as error:
            log.warning("the audit log misses rows: %s", error)
        finally:
            self._telling = None


def _with_query(path: str, query: str) -> str:
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True, errors="replace")
    kept = [(name, value) for name, value in pairs if name.casefold() != "authorization"]
    return f"{path}?{urllib.parse.urlencode(kept)}" if kept else path
