"""The request queue of one endpoint: sends requests at the rate that the endpoint allows.

Requests of handlers are *urgent* and are sent first. Some *normal* requests are sent between them,
so that a handler with many requests blocks neither earlier transactions nor the reading of blocks.
Normal requests about transactions and about blocks take turns, because a process that has just
started reads many blocks. While a request about a transaction waits, every second request is a
normal one: a handler makes five requests per transaction, and the transaction needs about five more
until its block is final. With a smaller share, unfinished transactions would accumulate.

Requests are sent together as a JSON-RPC batch if they wait at the same time, or arrive within two
milliseconds, and if the endpoint accepts batches.
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

# Exchanges in flight: the limit for those with a normal request, and the limit for all.
_NORMAL_EXCHANGES, _EXCHANGES = 8, 12
_URGENT_IN_A_ROW = 3  # urgent requests before a normal one is sent, if one waits
_URGENT_BEFORE_TRANSACTIONS = 1  # the same while a request about a transaction waits
_BATCH = 20  # requests
_GATHER_S = 0.002  # how long a normal request waits for others to share a batch
_LARGER_AFTER = 100  # answers before a larger batch is tried; the number doubles each time
_PENDING_LIMIT = 2_000  # requests in each of the two queues
_LATENCIES = 16  # latest answers from which the median latency is computed
_LONG_WAIT_S = 0.9  # a longer pause of the endpoint fails all pending requests
_OF_TRANSACTIONS = frozenset(
    {
        "eth_blockNumber",
        "eth_getTransactionByHash",
        "eth_getTransactionCount",
        "eth_getTransactionReceipt",
        "eth_sendRawTransaction",
    }
)
# Requests that are sent alone, because their answers may be large, or because a failure of the
# batch must not affect them.
_ALONE = frozenset({"eth_getLogs", "eth_getBlockReceipts", "eth_sendRawTransaction"})

Answer = dict[str, Any]


@dataclass(slots=True, eq=False)
class _Pending:
    method: str
    params: list[Any]
    limit_s: float
    urgent: bool
    answer: asyncio.Future[Answer] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def is_alone(self) -> bool:
        """Whether the request is sent alone. The logs of a single block are few, so a request for
        them may be in a batch."""
        return self.method in _ALONE and not (
            self.method == "eth_getLogs" and "blockHash" in self.params[0]
        )


class _NormalRequests:
    """The queue of normal requests: requests about transactions and about blocks take turns."""

    def __init__(self) -> None:
        self._transactions: deque[_Pending] = deque()
        self._blocks: deque[_Pending] = deque()
        self._is_turn_of_transactions = True

    def __len__(self) -> int:
        return len(self._transactions) + len(self._blocks)

    def append(self, waiting: _Pending) -> None:
        self._queue_of(waiting).append(waiting)

    def appendleft(self, waiting: _Pending) -> None:
        self._queue_of(waiting).appendleft(waiting)

    def remove(self, waiting: _Pending) -> None:
        """Remove a request. Raises ValueError if it is not in the queue."""
        self._queue_of(waiting).remove(waiting)

    @property
    def urgent_before(self) -> int:
        """How many urgent requests are sent before the next normal one."""
        return _URGENT_BEFORE_TRANSACTIONS if self._transactions else _URGENT_IN_A_ROW

    @property
    def first(self) -> _Pending:
        return self._next_queue()[0]

    def popleft(self) -> _Pending:
        queue = self._next_queue()
        self._is_turn_of_transactions = queue is not self._transactions
        return queue.popleft()

    def _queue_of(self, waiting: _Pending) -> deque[_Pending]:
        return self._transactions if waiting.method in _OF_TRANSACTIONS else self._blocks

    def _next_queue(self) -> deque[_Pending]:
        turn = self._is_turn_of_transactions or not self._blocks
        return self._transactions if self._transactions and turn else self._blocks


class RequestQueue:
    """Sends requests to one endpoint.

    Attributes:
        pace: the request rate of the endpoint.
        batch: the largest batch that the endpoint is known to accept, in requests.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.pace = Pace()
        self.batch = _BATCH if isinstance(transport, HttpTransport) else 1
        self._takes_batches = False  # whether the endpoint has answered a batch
        self._trying_batch = False  # whether the first batch is in flight
        self._urgent: deque[_Pending] = deque()
        self._normal = _NormalRequests()
        self._in_a_row = 0  # urgent requests since the last normal one
        self._answers_until_larger, self._next_larger = _LARGER_AFTER, 2 * _LARGER_AFTER
        self._exchanges: dict[asyncio.Task[None], bool] = {}  # whether all are urgent
        self._latencies_s: deque[float] = deque(maxlen=_LATENCIES)
        self._changed = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    @property
    def latency_s(self) -> float:
        """The median latency of the endpoint's latest answers; 0 before the first answer."""
        return statistics.median(self._latencies_s) if self._latencies_s else 0.0

    def wait_s(self, now: float, *, urgent: bool = False) -> float:
        """Estimate how long another request would wait before it is sent, in seconds."""
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
            limit_s: time limit of the answer, counted from the sending.
            urgent: whether to send the request before normal ones.

        Raises:
            BusyError: the endpoint limits requests, or too many requests are pending.
            TransportError: no usable answer came.
        """
        queue: deque[_Pending] | _NormalRequests = self._urgent if urgent else self._normal
        if len(queue) >= _PENDING_LIMIT:
            raise BusyError(f"{_PENDING_LIMIT} requests wait for this endpoint")
        waiting = _Pending(method, params, limit_s, urgent)
        queue.append(waiting)
        self._wake()
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):  # the request was sent already
                queue.remove(waiting)
            raise

    async def close(self) -> None:
        """Cancel all requests, and close the connection."""
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
        """Send pending requests until none is left."""
        gathered = False
        while self._urgent or self._normal:
            self._changed.clear()
            now = time.monotonic()
            wait_s = self.pace.wait_s(now)
            full = len(self._exchanges) >= _EXCHANGES
            if full or not (self._urgent or self._has_place_for_normal):
                await self._changed.wait()
            elif wait_s > 0:
                await asyncio.sleep(wait_s)
            elif not gathered and self.batch > 1 and not self._urgent:
                gathered = True
                await asyncio.sleep(_GATHER_S)
            elif group := self._next_group():
                self.pace.record_sent(now, len(group))
                self._start(group)

    def _next_group(self) -> list[_Pending]:
        """Remove the requests of the next batch from the queues and return them."""
        group: list[_Pending] = []
        queue: deque[_Pending] | _NormalRequests
        # A batch uses up the rate of its requests. With at most half a second's worth of requests,
        # an urgent request that arrives next waits no longer than that.
        most = max(1, int(min(self.batch, self.pace.rate / 2)))
        if self._trying_batch:
            most = 1
        while len(group) < most and (self._urgent or self._normal):
            others = len(self._normal) and self._has_place_for_normal
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
    def _has_place_for_normal(self) -> bool:
        return len(self._exchanges) - sum(self._exchanges.values()) < _NORMAL_EXCHANGES

    def _start(self, group: list[_Pending]) -> None:
        task = asyncio.create_task(self._exchange(group))
        self._exchanges[task] = all(waiting.urgent for waiting in group)
        first_batch = len(group) > 1 and not self._takes_batches
        self._trying_batch |= first_batch

        def ended(task: asyncio.Task[None]) -> None:
            self._trying_batch &= not first_batch
            del self._exchanges[task]
            self._changed.set()

        task.add_done_callback(ended)

    async def _exchange(self, group: list[_Pending]) -> None:
        """Send a group of requests and settle each with its answer."""
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

    def _send_in_smaller_batches(self, group: list[_Pending]) -> None:
        self.batch = max(1, min(self.batch, len(group) // 3))
        self._answers_until_larger, self._next_larger = self._next_larger, 2 * self._next_larger
        for waiting in reversed(group):
            if not waiting.answer.done():  # the caller of the request still waits
                (self._urgent if waiting.urgent else self._normal).appendleft(waiting)
        self._wake()

    async def _answers(self, group: list[_Pending]) -> list[Answer | TransportError]:
        if len(group) == 1 or not isinstance(self._transport, HttpTransport):
            return [await self._transport.request(one.method, one.params) for one in group]
        answers = await self._transport.batch([(one.method, one.params) for one in group])
        if all(answer is answers[0] for answer in answers) and not _is_busy(group[0], answers[0]):
            raise BatchRefusedError
        self._takes_batches = True
        return [answer or TransportError("it left out an answer of a batch") for answer in answers]

    def _settle_all(
        self, group: list[_Pending], answers: list[Answer | TransportError], began: float
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
        """Try larger batches again after many answers: the last failure may have been temporary."""
        if self.batch == _BATCH or not isinstance(self._transport, HttpTransport):
            return
        self._answers_until_larger -= 1
        if self._answers_until_larger <= 0:
            self.batch = min(_BATCH, 3 * self.batch)
            self._takes_batches = False
            self._answers_until_larger = self._next_larger

    def _return_waiting(self, busy: BusyError) -> None:
        """Fail all pending requests, because another endpoint may answer them sooner."""
        while self._urgent:
            _settle(self._urgent.popleft(), busy)
        while self._normal:
            _settle(self._normal.popleft(), busy)


def _is_busy(waiting: _Pending, answer: Any) -> BusyError | None:
    """Return a BusyError if an answer refuses the request because of too many requests."""
    error = answer.get("error") if isinstance(answer, dict) else None
    found = None if error is None else refusal(waiting.method, error, str)
    return found if isinstance(found, BusyError) else None


def _settle(waiting: _Pending, answer: Answer | Exception) -> None:
    if waiting.answer.done():  # the caller has cancelled the request
        return
    if isinstance(answer, Exception):
        waiting.answer.set_exception(answer)
    else:
        waiting.answer.set_result(answer)
