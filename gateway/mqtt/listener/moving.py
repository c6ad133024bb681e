"""Moves a session from one host of a cluster to another, when its client connects there.

The host to which a client connects asks all other hosts for its session before it answers the
CONNECT. The host that has the session ends its own connection of the client, and keeps the session
until the new host has stored all of it:

1. `take`: the old host sends the record of the session. The new host stores it and subscribes.
2. `settled`: each host waits until the messages of handlers that it is sending are on all hosts.
   The old host has all that came too early for the subscription of the new host now.
3. `end`: the old host sends the sequence number of its next message. The new host needs none from
   there on, because it gets them itself. After another `settled` it has them.
4. `rows`, again and again: the old host sends the messages before that end. The new host drops
   those that it has got itself.
5. `taken`: the old host removes the session. After `kept`, or when nothing comes, it keeps it.

A host that does not answer in time keeps its session, and the client starts with a new one. When
the client moves again, the older of its sessions is removed.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from fieldbrook.core.errors import NodeError
from fieldbrook.gateway.delivery.other_hosts import OtherHosts
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.gateway.mqtt.sessions.access import RefusedConnectError
from fieldbrook.gateway.mqtt.sessions.session import (
    Record,
    Session,
    WillRecord,
    decode_record,
    encode_record,
    session_key,
)
from fieldbrook.storage.mqtt import (
    Enqueue,
    Operation,
    PutSession,
    Release,
    StoredMessage,
    StoredSession,
)

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.listener.server import MqttServer

log = logging.getLogger(__name__)

T = TypeVar("T")

_TAKE, _SETTLED, _END, _ROWS = "take", "settled", "end", "rows"
_TAKEN, _KEPT = "taken", "kept"
_BUSY = "busy"
_NONE: Final = object()
_ANSWER_S = 2.0
_TAKE_S, _AGAIN_S = 3.0, 0.1
_LEAVING_S = 15.0  # without a question of the new host
_PAGE_ROWS, _PAGE_BYTES = 500, 256 << 10
_RELEASED = StoredMessage("", b"", 2, False, b"", 0)


class Moved(msgspec.Struct, array_like=True):
    """What a host sends of a session: its record, and the last message that the client was sent."""

    uid: int
    record: bytes
    sent_up_to: int


class _Found(NamedTuple):
    """A session on another host."""

    host: str
    moved: Moved
    record: Record

    def ended_at_ms(self) -> int:
        """When its connection ended, as Unix time by the clock of its host."""
        return self.record.ended_at_ms


class _Leaving(NamedTuple):
    """A session that another host is taking, and its will."""

    session: Session
    will: WillRecord | None
    timer: asyncio.TimerHandle


_Rows = list[tuple[int, StoredMessage | None]]


class Moving:
    """The moves from and to this host; every method is called in the loop.

    Args:
        server: the MQTT server of this host.
        hosts: the MQTT servers of the other hosts.
    """

    def __init__(self, server: MqttServer, hosts: OtherHosts) -> None:
        self._server, self._hosts = server, hosts
        self._leaving: dict[str, _Leaving] = {}
        self._fetched: weakref.WeakValueDictionary[str, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    # ---------------------------------------------------------------- to this host

    async def fetch(self, principal: str, client_id: str, *, clean_start: bool) -> None:
        """Have the session of a client on this host, and on no other one that answers.

        Args:
            principal: the name of the client's login; empty without one.
            client_id: the client's.
            clean_start: whether the client wants none of an earlier session.

        Raises:
            RefusedConnectError: the session is on its way between two hosts, or cannot be stored.
        """
        key = session_key(principal, client_id)
        self._keep(key)
        hosts = self._hosts.names()
        if not hosts:
            return
        lock = self._fetched.setdefault(key, asyncio.Lock())
        async with lock:
            question = [principal, client_id, clean_start]
            answers = await asyncio.gather(*(self._take_from(host, question) for host in hosts))
            if _BUSY in answers:
                raise RefusedConnectError(
                    ReasonCode.SERVER_BUSY, "the client connects to another host at the same time"
                )
            found = [
                one
                for host, answer in zip(hosts, answers, strict=True)
                if (one := _found(host, answer)) is not None
            ]
            await self._keep_newest(key, sorted(found, key=_Found.ended_at_ms))

    async def _keep_newest(self, key: str, found: list[_Found]) -> None:
        """Remove all sessions of a client but the newest one, and have that one here.

        Others are left over when a host did not answer while the client moved.
        """
        mine = self._server.sessions.get(key)
        if mine is not None and found:
            is_connected = mine.wire is not None or mine.opening is not None
            if not is_connected and mine.ended_at_ms < found[-1].ended_at_ms():
                self._server.sessions.remove(mine)
                mine = None
        newest = found.pop() if found and mine is None else None
        for old in found:
            await self._ask(old.host, _TAKEN, [key, old.moved.uid])
        if newest is not None:
            await self._adopt(key, newest)

    async def _adopt(self, key: str, found: _Found) -> None:
        """Store a session of another host, and have it removed there.

        Raises:
            RefusedConnectError: it stays on that host.
        """
        server, (host, moved, record) = self._server, found
        session: Session | None = None
        try:
            session = server.sessions.adopt(moved.uid, record, moved.sent_up_to)
            first_own = session.next_sequence
            await server.written([PutSession(StoredSession(key, session.uid, _unfinished(record)))])
            await self._settled()
            end = await self._asked(host, _END, [key, moved.uid], int)
            await self._settled()
            await server.written()
            own = collections.Counter(self._messages(session.uid, first_own - 1))
            after = -1
            while rows := await self._asked(host, _ROWS, [key, moved.uid, after, end], _Rows):
                after = rows[-1][0]
                rows = _without(own, rows, record.next_sequence)
                await server.written(list(_operations(session.uid, rows)))
                sizes = [0 if message is None else message.size for _, message in rows]
                server.router.queues.adopted(session, sizes)
            await server.written([PutSession(session.stored_session())])
        except (RefusedConnectError, NodeError, OSError, msgspec.MsgspecError) as error:
            log.warning("a session of host %s cannot be moved: %s", host, error)
            if session is not None:
                session.will = None
                server.sessions.remove(session)
            await self._ask(host, _KEPT, [key, moved.uid])
            if isinstance(error, RefusedConnectError):
                raise
            raise RefusedConnectError(
                ReasonCode.SERVER_UNAVAILABLE, "the session cannot be moved from another host"
            ) from error
        await self._ask(host, _TAKEN, [key, moved.uid])
        log.debug("a session was moved from host %s", host)

    async def _take_from(self, host: str, argument: Sequence[object]) -> Any:
        """Ask a host for a session, again if its gateway starts just now."""
        deadline = self._server.now() + _TAKE_S
        while host in self._hosts.names():
            answer = await self._ask(host, _TAKE, argument)
            if answer is not _NONE or self._server.now() > deadline:
                return answer
            await asyncio.sleep(_AGAIN_S)
        return _NONE

    async def _settled(self) -> None:
        """Return when the messages of handlers that are being sent now are on all hosts.

        It does not wait longer than `_ANSWER_S`: a host whose disk is full may take no messages.
        """
        asking = (self._ask(host, _SETTLED, []) for host in self._hosts.names())
        await asyncio.gather(self._hosts.settled(_ANSWER_S), *asking)

    def _messages(self, uid: int, after: int) -> Iterator[StoredMessage]:
        """Iterate over the messages in the queue of a session of this host."""
        while rows := self._server.queue_rows(uid, after, _PAGE_ROWS, _PAGE_BYTES):
            yield from (message for _, message in rows if message is not None)
            after = rows[-1][0]

    async def _asked(
        self, host: str, question: str, argument: Sequence[object], kind: type[T]
    ) -> T:
        """Ask the host that has a session.

        Raises:
            OSError: the host does not answer, or it keeps the session.
        """
        answer = await self._ask(host, question, argument)
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as error:
            raise ConnectionError(f"it has no answer to {question}: {error}") from error

    async def _ask(self, host: str, question: str, argument: Sequence[object]) -> Any:
        """Ask another host; returns its answer, `_NONE` if there is none."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await self._hosts.ask(host, question, argument)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            log.info("host %s does not answer a question about a session: %r", host, error)
            return _NONE

    # ---------------------------------------------------------------- from this host

    async def answer(self, question: str, argument: Sequence[Any]) -> object:
        """Answer another host.

        Raises:
            NodeError: the store cannot be read.
        """
        if question == _TAKE:
            return msgspec.to_builtins(self._take(*argument), builtin_types=(bytes,))
        if question == _SETTLED:
            await self._hosts.settled(_ANSWER_S)
            return None
        key, uid, *more = argument
        leaving = self._leaving.get(key)
        if leaving is None or leaving.session.uid != uid:
            return None
        leaving.timer.cancel()
        self._leaving[key] = leaving._replace(timer=self._timer(key))
        if question == _END:
            return leaving.session.next_sequence
        if question == _ROWS:
            rows = await self._rows(uid, *more)
            return msgspec.to_builtins(rows, builtin_types=(bytes,))
        if question == _TAKEN:
            self._forget(key)
            self._server.sessions.remove(leaving.session)
        else:
            self._keep(key)
        return None

    def _take(self, principal: str, client_id: str, clean_start: bool) -> Moved | str | None:
        sessions, key = self._server.sessions, session_key(principal, client_id)
        if key in self._fetched:
            return _BUSY
        self._keep(key)
        session = sessions.disconnected(key)
        if session is None:
            return None
        if clean_start:
            sessions.remove(session)
            return None
        moved = Moved(session.uid, session.stored_session().record, session.sent_up_to)
        will, session.will = session.will, None  # the client is there again
        self._leaving[key] = _Leaving(session, will, self._timer(key))
        return moved

    async def _rows(self, uid: int, after: int, end: int) -> _Rows:
        await self._server.written()
        rows = self._server.queue_rows(uid, after, _PAGE_ROWS, _PAGE_BYTES)
        return [row for row in rows if row[0] < end]

    def _timer(self, key: str) -> asyncio.TimerHandle:
        return self._server.loop.call_later(_LEAVING_S, self._keep, key)

    def _keep(self, key: str) -> None:
        """Keep a session that another host has not taken after all."""
        leaving = self._forget(key)
        if leaving is not None:
            leaving.session.will = leaving.will

    def _forget(self, key: str) -> _Leaving | None:
        leaving = self._leaving.pop(key, None)
        if leaving is not None:
            leaving.timer.cancel()
        return leaving


def _found(host: str, answer: object) -> _Found | None:
    """What a host has answered to `take`: a session, or none."""
    if not answer or answer is _NONE:
        return None
    try:
        moved = msgspec.convert(answer, Moved)
        return _Found(host, moved, decode_record(moved.record))
    except msgspec.MsgspecError as error:
        log.warning("host %s gives a session that cannot be read: %s", host, error)
        return None


def _unfinished(record: Record) -> bytes:
    """A record whose session is older than each other one of its client.

    If this host dies before it has all messages, the session of the other host stays.
    """
    return encode_record(msgspec.structs.replace(record, ended_at_ms=1))


def _without(own: collections.Counter[StoredMessage], rows: _Rows, newer: int) -> _Rows:
    """Return the rows of the old host without the messages that the new host has itself.

    Args:
        own: the messages of the new host; those that are found are removed.
        rows: of the old host.
        newer: the sequence number of the first row that was added after `take`.
    """
    found: _Rows = []
    for sequence, message in rows:
        if sequence >= newer and message is not None and own[message] > 0:
            own[message] -= 1
        else:
            found.append((sequence, message))
    return found


def _operations(uid: int, rows: _Rows) -> Iterator[Operation]:
    for sequence, message in rows:
        yield Enqueue(uid, sequence, message or _RELEASED)
        if message is None:
            yield Release(uid, sequence)
