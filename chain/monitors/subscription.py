"""A subscription to new blocks over a WebSocket (`eth_subscribe` with `newHeads`).

An announcement only triggers a poll; the node reads blocks from the endpoints as usual. Therefore a
lost, late or wrong announcement only causes a delay. After each connect the node polls once, and
reads all blocks since the last poll.

If polls find blocks that the subscription does not announce, it is closed and opened again, as
after a failure.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fieldbrook.chain.errors import MalformedAnswerError
from fieldbrook.chain.rpc.answers import BLOCK_LIMIT, quantity
from fieldbrook.chain.rpc.endpoint_url import public_part
from fieldbrook.core.settings import Chain

if TYPE_CHECKING:
    from fieldbrook.chain.rpc.transport import WebSocketTransport

log = logging.getLogger(__name__)

_ANSWER_LIMIT_S = 10.0
_MESSAGE_LIMIT_BYTES = 1 << 20  # a header has a few kilobytes
_PING_S = 20.0
_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)  # by the number of consecutive failures
_WARNED_FAILURES = 3  # consecutive failures before the first warning
_SILENT_S = 2.0  # how long the announcement of a found block may be missing before a reconnect
_AHEAD = 32  # how far announcements may be ahead of the endpoints, in blocks
_FLOOD, _FLOOD_S = 1_000, 10.0  # more announcements in this time end the connection


class HeadSubscription:
    """Keeps a subscription of one chain, from the setting `websocket`.

    Args:
        chain: the settings of the chain.
        redacted: removes secrets from a text.
        announced: called for each announcement, and after each connect.

    Attributes:
        reason: why no blocks are announced; empty while they are.
        newest: the newest announced block since the last connect; -1 without any.
    """

    def __init__(
        self, chain: Chain, redacted: Callable[[str], str], announced: Callable[[], None]
    ) -> None:
        self._chain = chain
        self._redacted = redacted
        self._announced = announced
        self.reason = "not connected yet"
        self.newest = -1
        self._failures = 0  # consecutive
        self._missing_since: float | None = None  # since when an announcement is overdue
        self._silent = asyncio.Event()
        self._count, self._count_began = 0, 0.0

    async def run(self) -> None:
        """Subscribe, and subscribe again after each failure, until cancelled."""
        while True:
            reason = await self._connect()
            self.reason = self._redacted(reason)
            self._failures += 1
            log.log(
                logging.WARNING if self._failures == _WARNED_FAILURES else logging.INFO,
                "chain %s: websocket %s does not announce blocks: %s",
                *(self._chain.name, public_part(self._chain.websocket or ""), self.reason),
            )
            pause_s = _PAUSES_S[min(self._failures, len(_PAUSES_S)) - 1]
            # Random, so that not all clients of a provider reconnect at the same moment.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311

    def compare(self, newest: int) -> None:
        """Compare the announcements with the newest block that a poll has found."""
        if self.reason or newest <= self.newest:
            self._missing_since = None
            return
        now = time.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        elif now - self._missing_since > max(_SILENT_S, self._chain.poll_ms / 1_000):
            self._silent.set()

    def is_complete(self, newest: int) -> bool:
        """Return whether the announcements are consistent with the newest block of a poll."""
        ahead = self.newest - newest
        return not self.reason and self._missing_since is None and ahead <= _AHEAD

    async def _connect(self) -> str:
        """Subscribe and wait for the end of the connection; return why it ended."""
        from fieldbrook.chain.rpc.transport import TransportError, WebSocketTransport

        self._silent.clear()
        self.newest, self._missing_since, self._count = -1, None, 0
        assert self._chain.websocket is not None
        transport = WebSocketTransport(
            self._chain.websocket, self._notified, limit_bytes=_MESSAGE_LIMIT_BYTES, ping_s=_PING_S
        )
        try:
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                reason = await self._subscribe(transport)
            if reason:
                return reason
            self.reason = ""
            self._announced()
            return await self._end(transport)
        except TimeoutError:
            return f"no answer within {_ANSWER_LIMIT_S:g} s"
        except TransportError as error:
            return str(error)
        finally:
            await transport.close()

    async def _subscribe(self, transport: WebSocketTransport) -> str:
        """Subscribe; return an empty text, or the reason why it is not possible.

        Raises:
            TransportError: no usable answer came.
        """
        try:
            found = quantity((await transport.request("eth_chainId", [])).get("result"))
        except MalformedAnswerError:
            return "its chain id is not a number"
        if found != self._chain.id:
            return f"it belongs to chain {found}, not to {self._chain.id}"
        answer = await transport.request("eth_subscribe", ["newHeads"])
        error = answer.get("error")
        if error is not None:
            return f"it refuses: {error.get('message') if isinstance(error, dict) else error}"
        return "" if isinstance(answer.get("result"), str) else "its answer names no subscription"

    async def _end(self, transport: WebSocketTransport) -> str:
        """Wait until the connection ends or announcements are missing; return the reason."""
        ended = asyncio.create_task(transport.ended())
        silent = asyncio.create_task(self._silent.wait())
        try:
            await asyncio.wait((ended, silent), return_when=asyncio.FIRST_COMPLETED)
            return ended.result() if ended.done() else "it does not announce new blocks"
        finally:
            ended.cancel()
            silent.cancel()

    def _notified(self, params: Any) -> None:
        """Process a notification.

        Raises:
            TransportError: it does not announce a block, or there are too many notifications.
        """
        from fieldbrook.chain.rpc.transport import TransportError

        now = time.monotonic()
        if now - self._count_began > _FLOOD_S:
            self._count, self._count_began = 0, now
        self._count += 1
        if self._count > _FLOOD:
            raise TransportError(f"more than {_FLOOD} announcements within {_FLOOD_S:g} s")
        header = params.get("result") if isinstance(params, dict) else None
        try:
            number = quantity(
                header.get("number") if isinstance(header, dict) else None, BLOCK_LIMIT
            )
        except MalformedAnswerError:
            raise TransportError("an announcement has no block number") from None
        self.newest = max(self.newest, number)  # after a reorganisation, lower numbers come again
        self._failures, self._missing_since = 0, None
        self._announced()
