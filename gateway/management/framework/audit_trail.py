"""The audit trail: writes one row of the audit log per request.

The first registry command of a request contains the request's row, so that the change and its row
are one write. Rows of requests that changed nothing in the registry, mostly refusals, are written a
little later and in batches. A refusal is logged only if the caller is known: an unknown caller must
not be able to displace the older rows of the log.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import urllib.parse
from collections.abc import Callable
from typing import Any

import msgspec

from fieldbrook.core.clock import Clock
from fieldbrook.core.errors import NodeError
from fieldbrook.core.model import AccessKey, Account
from fieldbrook.storage.registry.audit import AuditRow
from fieldbrook.storage.registry.service import RegistryClient

log = logging.getLogger(__name__)

_PATH_LIMIT = 1_024
_QUEUE_LIMIT = 1_000
_WRITE_INTERVAL_S = 0.2


class AuditTrail:
    """The audit data of one request: the caller, the operation, and whether it is written.

    Args:
        path: the path after the prefix, still percent-encoded.
        query: the query string; the parameter `authorization` is left out of the row.
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
        """Whether the caller is known."""
        return bool(self._account_id or self._account)

    def set_account(self, account: Account) -> None:
        """Record the account of the caller."""
        self._account_id, self._account = account.account_id, account.username

    def set_key(self, key: AccessKey) -> None:
        """Record the access key of the caller."""
        self._account_id, self._key = key.account_id, key.name

    def set_username(self, username: str) -> None:
        """Record the name of the account that the caller signs in to."""
        self._account = username

    def row(self, status: int, error: str = "") -> AuditRow:
        """The audit row of the request with its final status."""
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
    """The registry client of one request: the first command that succeeds contains the row.

    Args:
        registry: sends the commands.
        trail: makes the row.
        turn: limits the unanswered commands of the account.
        before: called before each command; it may refuse the command.
        after: called after each command that succeeds.
    """

    def __init__(
        self,
        registry: RegistryClient,
        trail: AuditTrail,
        turn: asyncio.Semaphore,
        before: Callable[[], None],
        after: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._trail = trail
        self._turn = turn
        self._before, self._after = before, after

    async def call(self, op: str, **args: Any) -> Any:
        """Send a command; see `RegistryClient.call`."""
        async with self._turn:
            self._before()
            if not self._trail.written:
                row = self._trail.row(201 if self._trail.method == "POST" else 200)
                args["audit"] = msgspec.to_builtins(row)
            result = await self._registry.call(op, **args)
        self._trail.written = True
        self._after()
        return result


class AuditQueue:
    """Queue of the audit rows that no registry command contained.

    At most 1,000 rows wait; they are written together every 0.2 s. Not thread-safe: call it
    from the thread of the event loop.
    """

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._queue: collections.deque[AuditRow] = collections.deque()
        self._writing: asyncio.Task[None] | None = None

    def add(self, trail: AuditTrail, status: int, error: str) -> None:
        """Queue the row of an answered request, unless it is written already or not needed.

        Reads are not logged, nor are refusals of unknown callers.
        """
        refused = status >= 400
        if trail.method in ("GET", "HEAD") or (trail.written and not refused):
            return
        if refused and not trail.known:
            return
        if len(self._queue) >= _QUEUE_LIMIT:
            log.warning("a row of the audit log is lost: the queue holds %d rows", len(self._queue))
            return
        self._queue.append(trail.row(status, error))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._queue:
                await asyncio.sleep(_WRITE_INTERVAL_S)
                rows = [msgspec.to_builtins(row) for row in self._queue]
                self._queue.clear()
                await self._registry.call("add_audit_rows", rows=rows)
        except NodeError as error:
            log.warning("rows of the audit log may be lost: %s", error)
        finally:
            self._writing = None


def _with_query(path: str, query: str) -> str:
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True, errors="replace")
    kept = [(name, value) for name, value in pairs if name.casefold() != "authorization"]
    return f"{path}?{urllib.parse.urlencode(kept)}" if kept else path
