"""The sessions of all clients: opening, keeping, taking over, expiry and last wills."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable

from fieldbrook.core import clock
from fieldbrook.core.errors import NodeError
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.gateway.mqtt.sessions.access import Principal, RefusedConnectError
from fieldbrook.gateway.mqtt.sessions.limits import ALL_PACKET_IDS, Limits
from fieldbrook.gateway.mqtt.sessions.retained import Write
from fieldbrook.gateway.mqtt.sessions.routing import Router
from fieldbrook.gateway.mqtt.sessions.session import (
    NEVER_EXPIRES,
    PACKET_IDS,
    Record,
    Session,
    WillRecord,
    Wire,
    decode_record,
    encode_record,
    new_uid,
    session_key,
)
from fieldbrook.storage.mqtt import DeleteSession, MqttStore, PutSession

log = logging.getLogger(__name__)

_STALE = 1_000
_SAVE_AGAIN_S = 1.0
_DUE_AT_ONCE = 50

PublishWill = Callable[[Session, WillRecord], None]


class Sessions:
    """All sessions of this process, connected or not; every method is called in the loop."""

    def __init__(
        self,
        limits: Limits,
        store: MqttStore,
        write: Write,
        router: Router,
        publish_will: PublishWill,
        call_later: Callable[..., object],
    ) -> None:
        """Load the sessions that the store has. `call_later` is that of the loop."""
        self._limits = limits
        self._call_later = call_later
        self._shared = limits.shared(limits.sessions)
        self._packet_ids = limits.shared(ALL_PACKET_IDS)
        self._write = write
        self._router = router
        self._publish_will = publish_will
        self._sessions: dict[str, Session] = {}
        # A heap of (Unix ms, key, uid): when a will has to be published, or a session ends.
        self._due: list[tuple[int, str, int]] = []
        usage = store.queue_usage()
        now = clock.now_ms()
        for stored in store.sessions():
            try:
                record = decode_record(stored.record)
            except ValueError:
                log.exception("a stored MQTT session cannot be read and is dropped")
                write([DeleteSession(stored.key, stored.uid)], None)
                continue
            session = self._add(record, len(stored.record), stored.uid)
            used = usage.get(stored.uid)
            if used is not None:
                session.queued, session.queued_bytes, session.sent_up_to = used
                router.queues.loaded(session)
                session.next_sequence = session.sent_up_to + 1
            session.next_sequence = max(session.next_sequence, record.next_sequence)
            if not record.ended_at_ms:
                session.ended_at_ms = now
            if record.will is not None and not record.will_at_ms:
                session.will_at_ms = now + 1_000 * record.will.delay_s
            self._schedule(session)

    def _add(self, record: Record, size: int, uid: int) -> Session:
        """Add a session without a connection; its record was encoded in `size` bytes."""
        session = Session(
            client_id=record.client_id,
            principal_name=record.principal,
            uid=uid,
            expiry_s=record.expiry_s,
            created_at_ms=record.created_at_ms,
            ended_at_ms=record.ended_at_ms,
            will=record.will,
            will_at_ms=record.will_at_ms,
            received=set(record.received),
            stored_received=set(record.received),
            releases=record.releases,
            address=record.address,
            origin=record.origin,
            packet_ids=self._packet_ids,
        )
        session.count_packet_ids()
        self._router.queues.count_record(session, size)
        for subscribed in record.subscriptions:
            self._router.subscribe(session, subscribed)
        self._sessions[session.key] = session
        self._shared.add(session.holder)
        return session

    def adopt(self, uid: int, record: Record, sent_up_to: int) -> Session:
        """Add a session of another host of the cluster, without its queue.

        Messages that the other host adds meanwhile have sequence numbers below those of this host.

        Args:
            uid: of the session on the other host.
            record: its record.
            sent_up_to: the sequence number of the last message that the client was sent.

        Raises:
            RefusedConnectError: there are too many sessions.
        """
        self._check_share(record.principal or record.address)
        record.origin = record.origin or uid
        record.will = None  # its client is there
        # The rows of the session that was here before may not be removed yet.
        session = self._add(record, len(encode_record(record)), new_uid())
        session.next_sequence = record.next_sequence + PACKET_IDS + self._limits.queued_messages
        session.sent_up_to = sent_up_to
        self._schedule(session)
        return session

    def _check_share(self, holder: str) -> None:
        if not self._shared.has(holder):
            raise RefusedConnectError(
                ReasonCode.QUOTA_EXCEEDED,
                f"{len(self._sessions)} sessions exist, {self._shared.of(holder)} of this login or "
                "address: the limit is reached",
            )

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def scheduled(self) -> int:
        """The number of entries in the heap of due times."""
        return len(self._due)

    def all(self) -> list[Session]:
        """All sessions, in the order in which they began."""
        return list(self._sessions.values())

    def get(self, key: str) -> Session | None:
        """The session with this key."""
        return self._sessions.get(key)

    def open(
        self,
        principal: Principal,
        client_id: str,
        *,
        clean_start: bool,
        expiry_s: int,
        wire: Wire,
        address: str = "",
    ) -> tuple[Session, bool]:
        """Find or create the session of a client that connects, and end its old connection.

        A session without a login counts for the `address` that created it, until the session ends.

        Returns:
            The session, and whether it existed before.

        Raises:
            RefusedConnectError: there are too many sessions.
        """
        session = self.disconnected(session_key(principal.name, client_id))
        if session is not None and clean_start:
            self.remove(session)
            session = None
        present = session is not None
        if session is None:
            session = Session(
                client_id,
                principal_name=principal.name,
                created_at_ms=clock.now_ms(),
                address="" if principal.name else address,
                packet_ids=self._packet_ids,
            )
            self._check_share(session.holder)
            self._sessions[session.key] = session
            self._shared.add(session.holder)
        session.principal = principal
        self._router.readers.update(session)
        session.opening = wire
        granted = self.granted(expiry_s)
        # A session that was kept until now has rows in the store; they are removed at its end.
        session.expires_now = present and not granted
        session.expiry_s = granted or session.expiry_s
        session.ended_at_ms = session.will_at_ms = 0
        session.will = None
        return session, present

    def disconnected(self, key: str) -> Session | None:
        """End the connection of a session; return the session if it outlives its connection."""
        session = self._sessions.get(key)
        old = None if session is None else session.wire or session.opening
        if session is not None and old is not None:
            session.wire = session.opening = None
            old.end(ReasonCode.SESSION_TAKEN_OVER, "another connection has taken over the session")
            self.closed(session)
        return self._sessions.get(key)

    def granted(self, expiry_s: int) -> int:
        """Return the session expiry that a client gets for a requested one, in seconds."""
        return min(expiry_s, self._limits.session_expiry_s)

    def set_expiry(self, session: Session, expiry_s: int) -> None:
        """Change how long a session is kept after the end of its connection."""
        if session.is_kept and not expiry_s:
            # The session ends with its connection; until then its rows stay in the store.
            session.expires_now = True
        session.expiry_s = self.granted(expiry_s) or session.expiry_s

    def save(self, session: Session, done: Callable[[NodeError | None], None] | None) -> None:
        """Write a kept session. For other sessions, only call `done`. This also holds for a session
        that has ended, because its row would replace the row of its successor."""
        if session.is_kept and self._sessions.get(session.key) is session:
            stored = session.stored_session()
            self._router.queues.count_record(session, len(stored.record))
            self._write([PutSession(stored)], done)
        elif done is not None:
            done(None)

    def save_surely(self, session: Session, *done: Callable[[], None]) -> None:
        """Write a session, again every second while it cannot be written; then call `done`."""

        def saved(error: NodeError | None) -> None:
            if error is None:
                for each in done:
                    each()
                return
            if not session.unsaved:
                self._call_later(_SAVE_AGAIN_S, self._save_again, session)
            session.unsaved.extend(done)

        self.save(session, saved)

    def _save_again(self, session: Session) -> None:
        done, session.unsaved = session.unsaved, []
        self.save_surely(session, *done)

    def closed(self, session: Session) -> None:
        """Note that a session has lost its connection: publish its will; keep the session or end
        it."""
        session.wire = session.opening = None
        session.ended_at_ms = now = clock.now_ms()
        will = session.will
        if will is not None:
            if will.delay_s and session.is_kept and not session.expires_now:
                session.will_at_ms = now + 1_000 * will.delay_s
            else:
                session.will = None
                self._publish_will(session, will)
        if not session.is_kept or session.expires_now:
            self.remove(session)
            return
        self._router.wire_changed(session)
        session.senders.clear()
        session.sender_keys.clear()
        self._router.readers.update(session)
        session.in_flight.clear()
        session.waiting.clear()
        session.waiting_bytes = 0
        self.save(session, None)
        self._schedule(session)

    def remove(self, session: Session) -> None:
        """End a session: remove its subscriptions, its queue and its row."""
        wire = session.wire or session.opening
        session.wire = session.opening = None
        if wire is not None:
            wire.end(ReasonCode.ADMINISTRATIVE_ACTION, "the session was removed")
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]
            self._shared.add(session.holder, -1)
        self._router.forget(session)
        session.is_removed = True
        session.count_packet_ids()
        will, session.will = session.will, None
        if will is not None and wire is None:
            self._publish_will(session, will)  # at the end of a session its will is published
        if session.is_kept:
            self._write([DeleteSession(session.key, session.uid)], None)

    def _schedule(self, session: Session) -> None:
        if len(self._due) >= 2 * len(self._sessions) + _STALE:
            # The heap is cleaned up, because each new connection of a client leaves an old entry.
            self._due = [each for known in self.all() if (each := _due_of(known)) is not None]
            heapq.heapify(self._due)
        elif (due := _due_of(session)) is not None:
            heapq.heappush(self._due, due)

    def expire(self) -> None:
        """Publish due wills and end expired sessions, some at a time; called about once a
        second."""
        now = clock.now_ms()
        for _ in range(_DUE_AT_ONCE):
            if not self._due or self._due[0][0] > now:
                return
            _, key, uid = heapq.heappop(self._due)
            session = self._sessions.get(key)
            if session is None or session.uid != uid or session.wire or session.opening:
                continue
            will = session.will
            if will is not None and 0 < session.will_at_ms <= now:
                session.will, session.will_at_ms = None, 0
                self._publish_will(session, will)
                self.save(session, None)
            expires = session.expires_at_ms()
            if expires is not None and expires <= now:
                self.remove(session)
            else:
                self._schedule(session)
        self._call_later(0.0, self.expire)


def _due_of(session: Session) -> tuple[int, str, int] | None:
    """Return when a session without a connection expires or publishes its will; None if it does
    not."""
    if session.wire or session.opening:
        return None
    times = [each for each in (session.expires_at_ms(), session.will_at_ms) if each]
    return (min(times), session.key, session.uid) if times else None


def requested_expiry_s(version_5: bool, clean_start: bool, asked: int | None) -> int:
    """Return the session expiry that a CONNECT requests. In 3.1.1 a session ends with the
    connection, or never."""
    if version_5:
        return asked or 0
    return 0 if clean_start else NEVER_EXPIRES
