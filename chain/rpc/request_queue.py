"""The request queue of one endpoint: sends requests at the rate that the endpoint allows.

Urgent requests, those of handlers, are sent first. Other requests are sent in between, so that a
handler with many requests stops neither earlier transactions nor the reading of blocks. Requests
for transactions and requests for blocks take turns, because a process that starts reads many
blocks. While a request for a transaction waits, every second request is not urgent: a handler makes
five requests per transaction, and the transaction needs about as many until its final block. With a
smaller share, unfinished transactions would accumulate.

Requests that wait while others are under way, or that arrive within two milliseconds, are sent
together as a JSON-RPC batch, if the endpoint accepts batches.
"""

from __future__ import annotations

import asyncio
import contextlib
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
_URGENT_IN_A_ROW = 3  # then a request that is not urgent is sent, if one waits
_URGENT_BEFORE_TRANSACTIONS = 1  # the same while a request for a transaction waits
_BATCH = 20
_GATHER_S = 0.002  # a request that is not urgent waits for others to share a batch
_LARGER_AFTER = 100  # answers before a larger batch is tried; the number doubles each time
_WAITING = 2_000
_LATENCIES = 16
_LONG_WAIT_S = 0.9  # during longer pauses of the endpoint, waiting requests are returned
_OF_TRANSACTIONS = frozenset(
    {
        "eth_blockNumber",
        "eth_getTransactionByHash",
        "eth_getTransactionCount",
        "eth_getTransactionReceipt",
        "eth_sendRawTransaction",
    }
)
# Requests that are sent alone: their answers may be large, or must not be lost with others.
_ALONE = frozenset({"eth_getLogs", "eth_getBlockReceipts", "eth_sendRawTransaction"})

Answer = dict[str, Any]


@dataclass(slots=True, eq=False)
class _Waiting:
    method: str
    params: list[Any]
    limit_s: float
    urgent: bool
    answer: asyncio.Future[Answer] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def is_alone(self) -> bool:
        """Whether it is sent alone. A request for the logs of one block is not: these are few."""
        return self.method in _ALONE and not (
            self.method == "eth_getLogs" and "blockHash" in self.params[0]
        )


class _Others:
    """Requests that are not urgent: those for transactions and those for blocks, in turn."""

    def __init__(self) -> None:
        self._transactions: deque[_Waiting] = deque()
        self._blocks: deque[_Waiting] = deque()
        self._is_turn_of_transactions = True

    def __len__(self) -> int:
        return len(self._transactions) + len(self._blocks)

    def append(self, waiting: _Waiting) -> None:
        self._queue_of(waiting).append(waiting)

    def appendleft(self, waiting: _Waiting) -> None:
        self._queue_of(waiting).appendleft(waiting)

    def remove(self, waiting: _Waiting) -> None:
        """Raises ValueError: it does not wait."""
        self._queue_of(waiting).remove(waiting)

    @property
    def urgent_before(self) -> int:
        """How many urgent requests are sent before one of these."""
        return _URGENT_BEFORE_TRANSACTIONS if self._transactions else _URGENT_IN_A_ROW

    @property
    def first(self) -> _Waiting:
        return self._next_queue()[0]

    def popleft(self) -> _Waiting:
        queue = self._next_queue()
        self._is_turn_of_transactions = queue is not self._transactions
        return queue.popleft()

    def _queue_of(self, waiting: _Waiting) -> deque[_Waiting]:
        return self._transactions if waiting.method in _OF_TRANSACTIONS else self._blocks

    def _next_queue(self) -> deque[_Waiting]:
        turn = self._is_turn_of_transactions or not self._blocks
        return self._transactions if self._transactions and turn else self._blocks


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
        self._normal = _Others()
        self._in_a_row = 0  # urgent requests, since the last one that was not
        self._answers_until_larger, self._next_larger = _LARGER_AFTER, 2 * _LARGER_AFTER
        self._exchanges: dict[asyncio.Task[None], bool] = {}  # whether all of it is urgent
        self._latencies_s: deque[float] = deque(maxlen=_LATENCIES)
        self._changed = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    @property
    def latency_s(self) -> float:
        """The median time of its latest answers; 0 if none is known."""
        return statistics.median(self._latencies_s) if self._latencies_s else 0.0

    def wait_s(self, now: float, *, urgent: bool = False) -> float:
        """Return about how long another request would wait before it is sent."""
        before, others = len(self._urgent), len(self._normal)
        if urgent:
            others = min(others, before // self._normal.urgent_before + 1)
        return self.pace.wait_s(now) + (before + others) / self.pace.rate

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
        queue: deque[_Waiting] | _Others = self._urgent if urgent else self._normal
        if len(queue) >= _WAITING:
            raise BusyError(f"{_WAITING} requests wait for it")
        waiting = _Waiting(method, params, limit_s, urgent)
        queue.append(waiting)
        self._wake()
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):  # it was sent
                queue.remove(waiting)
            raise

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
        """Send waiting requests; end when none waits."""
        gathered = False
        while self._urgent or self._normal:
            self._changed.clear()
            now = time.monotonic()
            wait_s = self.pace.wait_s(now)
            full = len(self._exchanges) >= _URGENT_EXCHANGES
            if full or not (self._urgent or self._has_place_for_others):
                await self._changed.wait()
            elif wait_s > 0:
                await asyncio.sleep(wait_s)
            elif not gathered and self.batch > 1 and not self._urgent:
                gathered = True
                await asyncio.sleep(_GATHER_S)
            elif group := self._next_group():
                self.pace.take(now, len(group))
                self._start(group)

    def _next_group(self) -> list[_Waiting]:
        """Take the requests that are sent next, together."""
        group: list[_Waiting] = []
        queue: deque[_Waiting] | _Others
        # At most the requests of half a second, so that an urgent request need not wait longer.
        most = max(1, int(min(self.batch, self.pace.rate / 2)))
        if self._trying_batch:
            most = 1
        while len(group) < most and (self._urgent or self._normal):
            others = len(self._normal) and self._has_place_for_others
            turn = self._in_a_row >= self._normal.urgent_before or not self._urgent
            if others and turn:
                first, queue = self._normal.first, self._normal
            elif self._urgent:
                first, queue = self._urgent[0], self._urgent
            else:
                break
            if group and (first.is_alone or group[0].is_alone):
                break
            self._in_a_row = self._in_a_row + 1 if first.urgent else 0
            group.append(queue.popleft())
        return group

    @property
    def _has_place_for_others(self) -> bool:
        return len(self._exchanges) - sum(self._exchanges.values()) < _EXCHANGES

    def _start(self, group: list[_Waiting]) -> None:
        task = asyncio.create_task(self._exchange(group))
        self._exchanges[task] = all(waiting.urgent for waiting in group)
        first_batch = len(group) > 1 and not self._takes_batches
        self._trying_batch |= first_batch

        def ended(task: asyncio.Task[None]) -> None:
            self._trying_batch &= not first_batch
            del self._exchanges[task]
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
        self._answers_until_larger, self._next_larger = self._next_larger, 2 * self._next_larger
        for waiting in reversed(group):
            if not waiting.answer.done():  # its caller still waits
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
                    self._note_answer()
                    if waiting.method not in _ALONE:
                        self._latencies_s.append(now - began)
                _settle(waiting, answer)

    def _note_answer(self) -> None:
        """Try larger batches after a while: what refused one may have been an accident."""
        if self.batch == _BATCH or not isinstance(self._transport, HttpTransport):
            return
        self._answers_until_larger -= 1
        if self._answers_until_larger <= 0:
            self.batch = min(_BATCH, 3 * self.batch)
            self._takes_batches = False
            self._answers_until_larger = self._next_larger

    def _return_waiting(self, busy: BusyError) -> None:
        """Return all requests that wait, because another endpoint may be faster."""
        while self._urgent:
            _settle(self._urgent.popleft(), busy)
        while self._normal:
            _settle(self._normal.popleft(), busy)


def _is_busy(waiting: _Waiting, answer: Any) -> BusyError | None:
    """Return the error if an answer says that there are too many requests."""
    error = answer.get("error") if isinstance(answer, dict) else None
    found = None if error is None else refusal(waiting.method, error, str)
    return found if isinstance(found, BusyError) else None


def _settle(waiting: _Waiting, answer: Answer | Exception) -> None:
    if waiting.answer.done():  # its caller has given up
        return
    if isinstance(answer, Exception):
        waiting.answer.set_exception(answer)
    else:
        waiting.answer.set_result(answer)
