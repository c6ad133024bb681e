"""The requests that wait for one endpoint: urgent ones first, at the pace that it allows.

What waits while other requests are under way is sent together, as a batch of JSON-RPC, where the
endpoint takes batches.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from fieldbrook.chain.rpc.pace import Pace
from fieldbrook.chain.rpc.refusals import refusal
from fieldbrook.chain.rpc.transport import (
    BatchRefusedError,
    BusyError,
    HttpTransport,
    Transport,
    TransportError,
)

_EXCHANGES, _URGENT_EXCHANGES = 8, 12  # under way at the same time
_BATCH = 20
_WAITING = 2_000
_LATENCIES = 16
_LONG_WAIT_S = 0.9  # longer rests of the endpoint are not waited for here
# Their answers may be large, or must not be lost with those of others.
_ALONE = frozenset({"eth_getLogs", "eth_getBlockReceipts", "eth_sendRawTransaction"})

Answer = dict[str, Any]


@dataclass(slots=True)
class _Waiting:
    method: str
    params: list[Any]
    limit_s: float
    urgent: bool
    answer: asyncio.Future[Answer] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class RequestQueue:
    """Sends requests to one endpoint.

    Attributes:
        pace: how often the endpoint may be asked.
        batch: how many requests it takes at once, as far as is known.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.pace = Pace()
        self.batch = _BATCH if isinstance(transport, HttpTransport) else 1
        self._takes_batches = False  # whether it has answered one
        self._trying_batch = False  # whether the first one is under way
        self._urgent: deque[_Waiting] = deque()
        self._normal: deque[_Waiting] = deque()
        self._exchanges: set[asyncio.Task[None]] = set()
        self._latencies_s: deque[float] = deque(maxlen=_LATENCIES)
        self._changed = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    @property
    def latency_s(self) -> float:
        """The median time of its latest answers; 0 if none is known."""
        return statistics.median(self._latencies_s) if self._latencies_s else 0.0

    def wait_s(self, now: float) -> float:
        """Return about how long another request would wait before it is sent."""
        waiting = len(self._urgent) + len(self._normal)
        return self.pace.wait_s(now) + waiting / self.pace.rate

    async def send(
        self, method: str, params: list[Any], limit_s: float, *, urgent: bool = False
    ) -> Answer:
        """Send a request when its turn has come, and return the whole answer.

        Args:
            method: a method of JSON-RPC.
            params: its parameters as JSON values.
            limit_s: time limit from the sending on.
            urgent: send it before all that are not.

        Raises:
            BusyError: the endpoint limits requests, or too many wait for it.
            TransportError: no usable answer came.
        """
        queue = self._urgent if urgent else self._normal
        if len(queue) >= _WAITING:
            raise BusyError(f"{_WAITING} requests wait for it")
        waiting = _Waiting(method, params, limit_s, urgent)
        queue.append(waiting)
        self._wake()
        return await waiting.answer

    async def close(self) -> None:
        """Give up all requests, and close the connection."""
        tasks = [*self._exchanges, *([self._sender] if self._sender else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._transport.close()

    # ---------------------------------------------------------------- sending

    def _wake(self) -> None:
        self._changed.set()
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """Send what waits; ends when nothing does."""
        while self._urgent or self._normal:
            self._changed.clear()
            now = time.monotonic()
            wait_s = self.pace.wait_s(now)
            if len(self._exchanges) >= (_URGENT_EXCHANGES if self._urgent else _EXCHANGES):
                await self._changed.wait()
            elif wait_s > 0:
                await asyncio.sleep(wait_s)
            elif group := self._next_group():
                self.pace.take(now, len(group))
                self._start(group)

    def _next_group(self) -> list[_Waiting]:
        """Take the requests that are sent next, together."""
        group: list[_Waiting] = []
        # Those of half a second, so that an urgent request need not wait longer.
        most = max(1, int(min(self.batch, self.pace.rate / 2)))
        if self._trying_batch:
            most = 1
        for queue in (self._urgent, self._normal):
            while queue and len(group) < most:
                if queue[0].answer.done():  # nobody waits for it any more
                    queue.popleft()
                elif group and (queue[0].method in _ALONE or group[0].method in _ALONE):
                    return group
                else:
                    group.append(queue.popleft())
        return group

    def _start(self, group: list[_Waiting]) -> None:
        task = asyncio.create_task(self._exchange(group))
        self._exchanges.add(task)
        first_batch = len(group) > 1 and not self._takes_batches
        self._trying_batch |= first_batch

        def ended(task: asyncio.Task[None]) -> None:
            self._trying_batch &= not first_batch
            self._exchanges.discard(task)
            self._changed.set()

        task.add_done_callback(ended)

    async def _exchange(self, group: list[_Waiting]) -> None:
        """Send a group of requests and hand out the answers."""
        began = time.monotonic()
        limit_s = max(waiting.limit_s for waiting in group)
        try:
            async with asyncio.timeout(limit_s):
                answers = await self._answers(group)
        except TimeoutError:
            self._latencies_s.append(limit_s)
            for waiting in group:
                text = f"no answer to {waiting.method} within {limit_s:g} s"
                _settle(waiting, TransportError(text))
        except BatchRefusedError:
            self._send_in_smaller_batches(group)
        except TransportError as error:
            if len(group) > 1 and not self._takes_batches and not isinstance(error, BusyError):
                self._send_in_smaller_batches(group)
            else:
                self._settle_all(group, [error] * len(group), began)
        except asyncio.CancelledError:
            for waiting in group:
                waiting.answer.cancel()
            raise
        else:
            self._settle_all(group, answers, began)

    def _send_in_smaller_batches(self, group: list[_Waiting]) -> None:
        self.batch = max(1, min(self.batch, len(group) // 3))
        for waiting in reversed(group):
            (self._urgent if waiting.urgent else self._normal).appendleft(waiting)
        self._wake()

    async def _answers(self, group: list[_Waiting]) -> list[Answer | TransportError]:
        if len(group) == 1 or not isinstance(self._transport, HttpTransport):
            return [await self._transport.request(one.method, one.params) for one in group]
        answers = await self._transport.batch([(one.method, one.params) for one in group])
        if all(answer is answers[0] for answer in answers) and not _is_busy(group[0], answers[0]):
            raise BatchRefusedError
        self._takes_batches = True
        return [answer or TransportError("it left out an answer of a batch") for answer in answers]

    def _settle_all(
        self, group: list[_Waiting], answers: list[Answer | TransportError], began: float
    ) -> None:
        now = time.monotonic()
        for waiting, answer in zip(group, answers, strict=True):
            busy = answer if isinstance(answer, BusyError) else _is_busy(waiting, answer)
            if busy:
                self.pace.record_refusal(now, began, busy.retry_after_s)
                _settle(waiting, busy)
                if self.pace.wait_s(now) > _LONG_WAIT_S:
                    self._return_waiting(busy)
            else:
                if isinstance(answer, dict):
                    self.pace.record_answer(now)
                    if waiting.method not in _ALONE:
                        self._latencies_s.append(now - began)
                _settle(waiting, answer)

    def _return_waiting(self, busy: BusyError) -> None:
        """Return all requests that wait, because another endpoint may be faster."""
        for queue in (self._urgent, self._normal):
            while queue:
                _settle(queue.popleft(), busy)


def _is_busy(waiting: _Waiting, answer: Any) -> BusyError | None:
    """Return the error if an answer says that there are too many requests."""
    error = answer.get("error") if isinstance(answer, dict) else None
    found = None if error is None else refusal(waiting.method, error, str)
    return found if isinstance(found, BusyError) else None


def _settle(waiting: _Waiting, answer: Answer | Exception) -> None:
    if waiting.answer.done():  # nobody waits for it any more
        return
    if isinstance(answer, Exception):
        waiting.answer.set_exception(answer)
    else:
        waiting.answer.set_result(answer)
