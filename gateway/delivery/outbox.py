"""Outbox delivery: fetches entries from the projects in order and delivers each at least once.

A project announces once that its outbox has entries; the gateway then fetches them until the
outbox is empty. An entry is reported as done after its delivery and only then removed. A crash in
between delivers the entry again, so no entry is lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from fieldbrook.actors.wire import AFTER, CONSUMER, DONE, LIMIT, REFUSED, WireEntry, entry_context
from fieldbrook.gateway.links.project_requests import ask_project
from fieldbrook.gateway.memory_budget import MemoryBudget
from fieldbrook.observability import metrics, spans
from fieldbrook.storage.project.outbox import API, MQTT

log = logging.getLogger(__name__)

_ENTRIES_PER_REQUEST = 256
_IN_FLIGHT_LIMIT = 1_024  # entries of one project in flight; the rest waits in its outbox
_IN_FLIGHT_BYTES = 16 << 20
ALL_IN_FLIGHT_BYTES = 64 << 20  # entries of all projects; a project may have as much as is left
_POLL_S = 0.02
_RETRY_S = 1.0
_IDLE_POLLS = 50  # the connection is closed after this many empty answers in a row


class _SpanOf(NamedTuple):
    """The span of a delivery, and the attribute that has the entry's target."""

    name: str
    kind: str
    target: str


# A transaction's span ends later, when an endpoint has accepted the transaction:
# `chain.transactions`.
_SPANS = {
    MQTT: _SpanOf(spans.PUBLISH, spans.PRODUCER, "messaging.destination.name"),
    API: _SpanOf(spans.CALL, spans.CLIENT, "fieldbrook.event.type"),
}


class MessageRefusedError(Exception):
    """The receiver of an entry refuses it permanently; the text gives the reason."""


class Publish(Protocol):
    """Publishes an MQTT message with QoS 1."""

    def __call__(self, topic: str, payload: bytes, project_id: int) -> Awaitable[None]:
        """Publish and wait without a deadline until the broker has the message.

        Raises:
            MessageRefusedError: the broker does not accept the message.
        """


class CallApi(Protocol):
    """Carries out an API call of an applet."""

    async def __call__(self, project_id: int, entry: WireEntry) -> None:
        """Carry out the call and wait until the event with its result has been handled."""


Deliver = Callable[[int, WireEntry], Awaitable[None]]


def deliveries(publish: Publish, call_api: CallApi) -> dict[str, Deliver]:
    """Map the entry kinds of MQTT messages and API calls to their delivery functions."""
    return {MQTT: lambda project_id, entry: publish(entry[2], entry[3], project_id), API: call_api}


class OutboxConsumer:
    """Delivers the entries of all projects that announced some, in the gateway's loop.

    Args:
        deliver: the delivery function of each kind of entry.
        consumer: the name under which entries are fetched (`storage.project.outbox.consumer_of`).
        limit_bytes: the limit for the entries in flight. A project without entries in flight may
            always have one.
    """

    def __init__(
        self,
        deliver: dict[str, Deliver],
        consumer: str = "",
        limit_bytes: int = ALL_IN_FLIGHT_BYTES,
    ) -> None:
        self._deliver = deliver
        self._consumer = consumer
        self._budget = MemoryBudget(limit_bytes)
        self._projects: dict[int, _ProjectOutbox] = {}

    def consume(self, project_id: int, path: str) -> None:
        """Start to fetch a project's entries from the worker at this socket."""
        outbox = self._projects.setdefault(
            project_id, _ProjectOutbox(project_id, self._deliver, self._consumer, self._budget)
        )
        outbox.wake(path, lambda: self._projects.pop(project_id, None))

    def stop(self) -> None:
        """Cancel all deliveries; unfinished entries are fetched again after a restart."""
        for taking in self._projects.values():
            taking.stop()


class _ProjectOutbox:
    """The deliveries of one project.

    It outlives a connection: deliveries that finish after a connection broke are reported over
    the next one.
    """

    def __init__(
        self, project_id: int, deliver: dict[str, Deliver], consumer: str, budget: MemoryBudget
    ) -> None:
        self._project_id = project_id
        self._budget = budget
        self._deliver = deliver
        self._consumer = consumer
        self._path: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._in_flight: dict[int, asyncio.Task[None]] = {}
        self._bytes = 0  # total size of the entries in flight
        self._done: list[int] = []
        self._refused: dict[int, str] = {}

    def wake(self, path: str, forget: Callable[[], object]) -> None:
        self._path = path
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(forget))

    def stop(self) -> None:
        for task in [*self._in_flight.values(), *([self._task] if self._task else [])]:
            task.cancel()

    async def _run(self, forget: Callable[[], object]) -> None:
        while self._path is not None:
            path, self._path = self._path, None
            try:
                await self._consume(path)
            except (OSError, EOFError, ValueError) as error:
                # The project announces its entries again when it starts again.
                log.info(
                    "the connection to the outbox of project %d ended: %s",
                    self._project_id,
                    str(error) or "closed",
                )
        self._task = None
        # Delivered entries are reported to the project's next worker; otherwise it would deliver
        # them again.
        if not (self._in_flight or self._done or self._refused):
            forget()

    async def _consume(self, path: str) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        after, idle = 0, 0
        try:
            while idle < _IDLE_POLLS:
                woken = self._path == path  # another path: the project has moved to it
                if woken:
                    self._path = None
                done, self._done = self._done, []
                refused, self._refused = self._refused, {}
                try:
                    request = self._request(self._most(), after, done, refused)
                    entries: tuple[WireEntry, ...] = await ask_project(
                        reader, writer, self._project_id, request
                    )
                except BaseException:
                    self._done += done
                    self._refused |= refused
                    if woken and self._path is None:
                        self._path = path  # the next worker may have the same socket: try again
                    raise
                for entry in entries:
                    after = entry[0]
                    if not (
                        after in self._in_flight or after in self._done or after in self._refused
                    ):
                        self._start_delivery(entry)
                idle = idle + 1 if not (entries or done or refused or self._in_flight) else 0
                if len(entries) < _ENTRIES_PER_REQUEST:
                    await asyncio.sleep(_POLL_S)
        finally:
            writer.close()

    def _most(self) -> int:
        """Return the number of entries to fetch now."""
        left = self._budget.limit - self._budget.used
        if self._bytes >= min(_IN_FLIGHT_BYTES, left):
            return 0 if self._in_flight else 1
        return min(_ENTRIES_PER_REQUEST, _IN_FLIGHT_LIMIT - len(self._in_flight))

    def _request(
        self, limit: int, after: int, done: list[int], refused: dict[int, str]
    ) -> dict[str, object]:
        return {LIMIT: limit, AFTER: after, DONE: done, CONSUMER: self._consumer, REFUSED: refused}

    def _start_delivery(self, entry: WireEntry) -> None:
        self._bytes += len(entry[3])
        self._budget.reserve(len(entry[3]))
        task = asyncio.get_running_loop().create_task(self._finish(entry))
        self._in_flight[entry[0]] = task

    async def _finish(self, entry: WireEntry) -> None:
        sequence, kind, refusal = entry[0], entry[1], ""
        context = b"" if spans.here is None else entry_context(entry)
        began_ns = time.time_ns() if context else 0
        try:
            while not await self._delivered(kind, entry):
                await asyncio.sleep(_RETRY_S)
            self._done.append(sequence)
            metrics.add(metrics.OUTBOX_DELIVERED[metrics.effect_kind(kind)])
        except MessageRefusedError as error:
            self._refused[sequence] = refusal = str(error)
            metrics.add(metrics.OUTBOX_REFUSED[metrics.effect_kind(kind)])
        finally:
            self._in_flight.pop(sequence, None)
            self._bytes -= len(entry[3])
            self._budget.release(len(entry[3]))
        if context and kind in _SPANS:
            name, span_kind, target = _SPANS[kind]
            attributes = {"fieldbrook.event.id": entry[4], target: entry[2]}
            spans.end(name, span_kind, context, began_ns, attributes, refusal)

    async def _delivered(self, kind: str, entry: WireEntry) -> bool:
        try:
            await self._deliver[kind](self._project_id, entry)
        except MessageRefusedError:
            raise
        except Exception:
            log.exception(
                "outbox of project %d: entry %d could not be delivered", self._project_id, entry[0]
            )
            metrics.add(metrics.OUTBOX_FAILED[metrics.effect_kind(kind)])
            return False
        return True
