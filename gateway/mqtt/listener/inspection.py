"""Inspection of the MQTT server by administrators: lists, removals, publishing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fieldbrook.core.errors import BadRequestError, FieldError
from fieldbrook.gateway.mqtt.connection.connection import Connection
from fieldbrook.gateway.mqtt.inspection import (
    ConnectedClient,
    RetainedState,
    SessionState,
    SubscriptionState,
)
from fieldbrook.gateway.mqtt.protocol.errors import ProtocolError
from fieldbrook.gateway.mqtt.protocol.packets import VERSION_5
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.gateway.mqtt.sessions.limits import check_topic
from fieldbrook.gateway.mqtt.sessions.session import Message, Session

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.listener.server import MqttServer


class Inspection:
    """See `inspection.Inspectable`."""

    def __init__(self, server: MqttServer) -> None:
        self._server = server

    def clients(self, after: str, limit: int) -> Sequence[ConnectedClient]:
        """See `inspection.Inspectable`."""
        found = (each for each in self._page(after) if isinstance(each.wire, Connection))
        return [_client(session) for session, _ in zip(found, range(limit), strict=False)]

    def client(self, key: str) -> ConnectedClient | None:
        """See `inspection.Inspectable`."""
        session = self._server.sessions.get(key)
        connected = session is not None and isinstance(session.wire, Connection)
        return _client(session) if session is not None and connected else None

    def disconnect(self, key: str) -> bool:
        """See `inspection.Inspectable`."""
        session = self._server.sessions.get(key)
        if session is None or session.wire is None:
            return False
        session.wire.end(ReasonCode.ADMINISTRATIVE_ACTION, "an administrator has disconnected it")
        return True

    def keys(self, client_id: str) -> Sequence[str]:
        """See `inspection.Inspectable`."""
        sessions = self._server.sessions.all()
        return [session.key for session in sessions if session.client_id == client_id]

    def sessions(self, after: str, limit: int) -> Sequence[SessionState]:
        """See `inspection.Inspectable`."""
        page = zip(self._page(after), range(limit), strict=False)
        return [_session(session) for session, _ in page]

    def session(self, key: str) -> SessionState | None:
        """See `inspection.Inspectable`."""
        session = self._server.sessions.get(key)
        return None if session is None else _session(session, with_filters=True)

    async def remove_session(self, key: str) -> bool:
        """See `inspection.Inspectable`."""
        session = self._server.sessions.get(key)
        if session is None:
            return False
        was_kept = session.is_kept
        self._server.sessions.remove(session)
        if was_kept:
            await self._server.written()
        return True

    def retained(self, after: str, limit: int) -> Sequence[RetainedState]:
        """See `inspection.Inspectable`."""
        found = sorted(self._server.router.retained.matching("#"), key=lambda each: each[0])
        page = [message for topic, message in found if topic > after]
        return [_retained(message) for message in page[:limit]]

    def retained_message(self, topic: str) -> RetainedState | None:
        """See `inspection.Inspectable`."""
        message = self._server.router.retained.get(topic)
        return None if message is None else _retained(message, with_payload=True)

    async def remove_retained(self, topic: str) -> bool:
        """See `inspection.Inspectable`."""
        if not self._server.router.retained.remove(topic):
            return False
        await self._server.written()
        return True

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool) -> int:
        """See `inspection.Inspectable`."""
        try:
            check_topic(topic)
        except ProtocolError as error:
            raise BadRequestError(FieldError("topic", error.text, "body")) from None
        if topic.startswith("$") or self._server.access.is_event_topic(topic):
            reason = "clients cannot subscribe to this topic"
            raise BadRequestError(FieldError("topic", reason, "body"))
        return await self._server.own_messages.distribute(Message(topic, payload, qos, retain))

    def _page(self, after: str) -> Iterable[Session]:
        """The sessions in the order of their keys, after the key `after`."""
        keys = sorted(session.key for session in self._server.sessions.all())
        found = (self._server.sessions.get(key) for key in keys if key > after)
        return (session for session in found if session is not None)


def _client(session: Session) -> ConnectedClient:
    connection = session.wire
    assert isinstance(connection, Connection)
    return ConnectedClient(
        key=session.key,
        client_id=session.client_id,
        principal=session.principal_name,
        address=connection.address,
        transport=connection.kind,
        version="5.0" if connection.version == VERSION_5 else "3.1.1",
        connected_at_ms=connection.connected_at_ms,
        keep_alive_s=connection.keep_alive_s,
        session_expiry_s=session.expiry_s,
        subscriptions=len(session.subscriptions),
        messages_in=connection.inbox.taken,
        messages_out=connection.messages_out,
        bytes_in=connection.bytes_in,
        bytes_out=connection.bytes_out,
        unacknowledged_in=len(connection.inbox),
        unacknowledged_out=len(session.in_flight),
        queued=session.queued,
    )


def _session(session: Session, *, with_filters: bool = False) -> SessionState:
    filters = [
        SubscriptionState(
            topic_filter=each.topic_filter,
            qos=each.qos,
            no_local=each.no_local,
            retain_as_published=each.retain_as_published,
            identifier=each.identifier,
        )
        for each in (session.subscriptions.values() if with_filters else ())
    ]
    connected = session.wire is not None
    return SessionState(
        key=session.key,
        client_id=session.client_id,
        principal=session.principal_name,
        is_connected=connected,
        created_at_ms=session.created_at_ms,
        ended_at_ms=0 if connected else session.ended_at_ms,
        expires_at_ms=0 if connected else session.expires_at_ms() or 0,
        session_expiry_s=session.expiry_s,
        subscriptions=len(session.subscriptions),
        queued=session.queued,
        queued_bytes=session.queued_bytes,
        unacknowledged_out=len(session.in_flight),
        has_will=session.will is not None,
        filters=filters,
    )


def _retained(message: Message, *, with_payload: bool = False) -> RetainedState:
    return RetainedState(
        topic=message.topic,
        qos=message.qos,
        size=len(message.payload),
        expires_at_ms=message.expires_at_ms,
        payload=message.payload if with_payload else b"",
    )
