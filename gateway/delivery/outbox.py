"""Delivering what handlers have sent: taken from the projects, in order, until it is done.

A project says once that its outbox has entries; from then on they are asked for until it
is empty. An entry is reported as done after its delivery and only then removed, so a crash
in between delivers it again, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import Protocol

from fieldbrook.actors.wire import AFTER, DONE, REFUSED, TAKE, TAKER, WireEntry, frame, pack, unpack
from fieldbrook.observability import metrics
from fieldbrook.storage.project.outbox import API, MQTT

log = logging.getLogger(__name__)

_LENGTH = struct.Struct("<I")
_TAKE_ENTRIES = 256
_UNDELIVERED_LIMIT = 1_024  # of one project; the rest waits in its outbox
_UNDELIVERED_BYTES = 16 << 20
_POLL_S = 0.02
_RETRY_S = 1.0
_IDLE_POLLS = 50  # empty answers after which the connection is given up


class MessageRefusedError(Exception):
    """Whoever is to get an entry does not take it, and never will; the text says why."""


class Publish(Protocol):
    """Publishes an MQTT message with QoS 1."""

    def __call__(self, topic: str, payload: bytes) -> Awaitable[None]:
        """Ends when the broker has the message, however long that takes.

        Raises:
            MessageRefusedError: it does not take it.
        """


class CallApi(Protocol):
    """Carries out an API call of an applet."""

    async def __call__(self, project_id: int, entry: WireEntry) -> None:
        """Ends when the event with the result has been handled."""


Deliver = Callable[[int, WireEntry], Awaitable[None]]


def deliveries(publish: Publish, call_api: CallApi) -> dict[str, Deliver]:
    """What is done with entries of the kinds that are messages and API calls."""
    return {MQTT: lambda _project_id, entry: publish(entry[2], entry[3]), API: call_api}


class OutboxTaker:
    """Takes from every project that has something, in the gateway's loop.

    Args:
        deliver: what is done with an entry, by its kind.
        taker: whose entries these are (`storage.project.outbox.taker_of`).
    """

    def __init__(self, deliver: dict[str, Deliver], taker: str = "") -> None:
        self._deliver = deliver
        self._taker = taker
        self._projects: dict[int, _Taking] = {}

    def take(self, project_id: int, path: str) -> None:
        """The project at this socket has something."""
        taking = self._projects.setdefault(
            project_id, _Taking(project_id, self._deliver, self._taker)
        )
        taking.wake(path, lambda: self._projects.pop(project_id, None))

    def stop(self) -> None:
        """Take no more; what is under way is taken again after a restart."""
        for taking in self._projects.values():
            taking.stop()


class _Taking:
    """What is under way for one project. It outlives a connection: what was delivered when
    one broke is reported over the next."""

    def __init__(self, project_id: int, deliver: dict[str, Deliver], taker: str) -> None:
        self._project_id = project_id
        self._deliver = deliver
        self._taker = taker
        self._path: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._bytes = 0  # of what is under way
        self._done: list[int] = []
        self._refused: dict[int, str] = {}

    def wake(self, path: str, forget: Callable[[], object]) -> None:
        self._path = path
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(forget))

    def stop(self) -> None:
        for task in [*self._under_way.values(), *([self._task] if self._task else [])]:
            task.cancel()

    async def _run(self, forget: Callable[[], object]) -> None:
        while self._path is not None:
            path, self._path = self._path, None
            try:
                await self._take_all(path)
            except (OSError, EOFError, ValueError) as error:
                # Its next incarnation says again that it has something.
                log.info("outbox of project %d: %s", self._project_id, str(error) or "closed")
        self._task = None
        if not self._under_way:
            forget()

    async def _take_all(self, path: str) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        after, idle = 0, 0
        try:
            while idle < _IDLE_POLLS:
                self._path = None
                done, self._done = self._done, []
                refused, self._refused = self._refused, {}
                room = min(_TAKE_ENTRIES, _UNDELIVERED_LIMIT - len(self._under_way))
                if self._bytes >= _UNDELIVERED_BYTES:
                    room = 0
                try:
                    writer.write(frame(pack(self._request(room, after, done, refused))))
                    entries = await _read(reader)
                except BaseException:
                    self._done += done
                    self._refused |= refused
                    raise
                for entry in entries:
                    after = entry[0]
                    if not (
                        after in self._under_way or after in self._done or after in self._refused
                    ):
                        self._begin(entry)
                idle = idle + 1 if not (entries or done or refused or self._under_way) else 0
                if len(entries) < _TAKE_ENTRIES:
                    await asyncio.sleep(_POLL_S)
        finally:
            writer.close()

    def _request(
        self, room: int, after: int, done: list[int], refused: dict[int, str]
    ) -> dict[str, object]:
        return {TAKE: room, AFTER: after, DONE: done, TAKER: self._taker, REFUSED: refused}

    def _begin(self, entry: WireEntry) -> None:
        self._bytes += len(entry[3])
        task = asyncio.get_running_loop().create_task(self._finish(entry))
        self._under_way[entry[0]] = task

    async def _finish(self, entry: WireEntry) -> None:
        sequence, kind = entry[0], entry[1]
        try:
            while not await self._delivered(kind, entry):
                await asyncio.sleep(_RETRY_S)
            self._done.append(sequence)
            metrics.add(metrics.OUTBOX_DELIVERED[metrics.effect_kind(kind)])
        except MessageRefusedError as error:
            self._refused[sequence] = str(error)
            metrics.add(metrics.OUTBOX_REFUSED[metrics.effect_kind(kind)])
        finally:
            self._under_way.pop(sequence, None)
            self._bytes -= len(entry[3])

    async def _delivered(self, kind: str, entry: WireEntry) -> bool:
        try:
            await self._deliver[kind](self._project_id, entry)
        except MessageRefusedError:
            raise
        except Exception:
            log.exception("outbox of project %d: entry %d", self._project_id, entry[0])
            metrics.add(metrics.OUTBOX_FAILED[metrics.effect_kind(kind)])
            return False
        return True


async def _read(reader: asyncio.StreamReader) -> tuple[WireEntry, ...]:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    entries: tuple[WireEntry, ...] = unpack(await reader.readexactly(length))
    return entries
