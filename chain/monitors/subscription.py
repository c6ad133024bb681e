"""A subscription to new blocks over a WebSocket (`eth_subscribe` with `newHeads`).

An announcement only makes the node poll at once; blocks are read from the endpoints as always. So
an announcement that is lost, late or wrong costs time and nothing else. After each connect the node
polls once, and reads all blocks since the last poll.

A subscription that announces fewer blocks than polling finds is ended and opened again, like one
that fails.
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
_WARNED_FAILURES = 3  # consecutive ones
_SILENT_S = 2.0  # at least, from a block that was found to the next announcement
_AHEAD = 32  # announced blocks that no endpoint has
_FLOOD, _FLOOD_S = 1_000, 10.0  # more announcements in this time end the connection


class HeadSubscription:
    """Keeps a subscription of one chain, from the setting `websocket`.

    Args:
        chain: the settings of the chain.
        redacted: removes secrets from a text.
        announced: is called for each announcement, and after each connect.

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
        self._missing_since: float | None = None  # when a block was found that is not announced
        self._silent = asyncio.Event()
        self._count, self._count_began = 0, 0.0

    async def run(self) -> None:
        """Subscribe, and again after each failure; runs until cancelled."""
        while True:
            reason = await self._connect()
            self.reason = self._redacted(reason)
            self._failures += 1
            log.log(
                logging.WARNING if self._failures == _WARNED_FAILURES else logging.INFO,
                "chain %s: blocks are not announced by %s: %s",
                *(self._chain.name, public_part(self._chain.websocket or ""), self.reason),
            )
            pause_s = _PAUSES_S[min(self._failures, len(_PAUSES_S)) - 1]
            # Not all nodes of a provider's clients come back in the same moment.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311

    def compare(self, newest: int) -> None:
        """Compare the announcements with the newest block that a look has found."""
        if self.reason or newest <= self.newest:
            self._missing_since = None
            return
        now = time.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        elif now - self._missing_since > max(_SILENT_S, self._chain.poll_ms / 1_000):
            self._silent.set()

    def is_complete(self, newest: int) -> bool:
        """Return whether announcements seem to fit the newest block that was found."""
        ahead = self.newest - newest
        return not self.reason and self._missing_since is None and ahead <= _AHEAD

    async def _connect(self) -> str:
        """Subscribe and wait for the end of the connection; returns why it ended."""
        from fieldbrook.chain.rpc.transport import TransportError, WebSocketTransport

        self._silent.clear()
        self.newest, self._missing_since, self._count = -1, None, 0
        assert self._chain.websocket is not None
        transport = WebSocketTransport(
            self._chain.websocket, self._take, limit_bytes=_MESSAGE_LIMIT_BYTES, ping_s=_PING_S
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
        """Subscribe; returns why it is not possible, else an empty text.

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
        """Wait until the connection ends or blocks are missing; returns the reason."""
        ended = asyncio.create_task(transport.ended())
        silent = asyncio.create_task(self._silent.wait())
        try:
            await asyncio.wait((ended, silent), return_when=asyncio.FIRST_COMPLETED)
            return ended.result() if ended.done() else "it does not announce new blocks"
        finally:
            ended.cancel()
            silent.cancel()

    def _take(self, params: Any) -> None:
        """Take a notification.

        Raises:
            TransportError: it is not one of a new block, or there are too many.
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
            raise TransportError("an announcement without the number of a block") from None
        self.newest = max(self.newest, number)  # a reorganisation announces lower ones again
        self._failures, self._missing_since = 0, None
        self._announced()
