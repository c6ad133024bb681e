"""CONNECT: checks the client, opens its session, and makes the answer."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

from fieldbrook.core.errors import NodeError, StoreError
from fieldbrook.gateway.mqtt.protocol.errors import ProtocolError
from fieldbrook.gateway.mqtt.protocol.packets import VERSION_5, ConnAck, Connect, Will
from fieldbrook.gateway.mqtt.protocol.properties import NO_PROPERTIES, Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.gateway.mqtt.sessions.access import LOGIN_ENDED, Principal, RefusedConnectError
from fieldbrook.gateway.mqtt.sessions.forwarded import forwarded, pack_properties
from fieldbrook.gateway.mqtt.sessions.limits import (
    ALIASES,
    CLIENT_ID_BYTES,
    WILL_BYTES,
    ConnectRate,
    check_topic,
)
from fieldbrook.gateway.mqtt.sessions.session import Session, WillRecord
from fieldbrook.gateway.mqtt.sessions.sessions import requested_expiry_s
from fieldbrook.observability import metrics

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.connection.connection import Connection
    from fieldbrook.gateway.mqtt.listener.server import MqttServer

log = logging.getLogger(__name__)


class Connecting:
    """Answers CONNECTs."""

    def __init__(self, server: MqttServer) -> None:
        self._server = server
        limits = server.limits
        self._rate = ConnectRate(limits.connects_per_s, limits.share_percent)
        # Sessions that are being stored, by the connection that waits for its CONNACK.
        self._opening: dict[Connection, Session] = {}
        self._fetching: set[asyncio.Task[None]] = set()

    def forget(self, connection: Connection) -> Session | None:
        """Remove and return the session of a connection that ends before its CONNACK."""
        return self._opening.pop(connection, None)

    def connect(self, connection: Connection, packet: Connect) -> None:
        """Answer a CONNECT, after the session is stored if it has to be."""
        try:
            principal = self._admit(connection.peer, packet)
        except RefusedConnectError as error:
            self._refuse(connection, error)
            return
        if self._server.moving is None or not packet.client_id:
            self._open(connection, packet, principal)
            return
        task = self._server.loop.create_task(self._fetch(connection, packet, principal))
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)

    async def _fetch(self, connection: Connection, packet: Connect, principal: Principal) -> None:
        """Answer a CONNECT when no other host has the session any more."""
        moving, name = self._server.moving, principal.name
        assert moving is not None
        try:
            await moving.fetch(name, packet.client_id, clean_start=packet.clean_start)
        except RefusedConnectError as error:
            self._refuse(connection, error)
            return
        if connection in self._server.connections:
            self._open(connection, packet, principal)

    def _refuse(self, connection: Connection, error: RefusedConnectError) -> None:
        metrics.add(metrics.MQTT_CONNECTS_REFUSED)
        log.debug("%s may not connect: %s", connection.address, error)
        connection.reject(error.code, str(error))

    def _open(self, connection: Connection, packet: Connect, principal: Principal) -> None:
        try:
            self._server.check_login(principal, packet.client_id)
            assigned = "" if packet.client_id else f"auto-{secrets.token_hex(8)}"
            five = packet.version == VERSION_5
            asked = requested_expiry_s(
                five, packet.clean_start, packet.properties.session_expiry_interval
            )
            self._check_will(principal.name or connection.peer, packet, kept=asked > 0)
            session, present = self._server.sessions.open(
                principal,
                packet.client_id or assigned,
                clean_start=packet.clean_start,
                expiry_s=asked,
                wire=connection,
                address=connection.peer,
            )
        except RefusedConnectError as error:
            self._refuse(connection, error)
            return
        self._server.logins.end_forbidden(session)
        session.version = packet.version
        session.will = None if packet.will is None else _will_record(packet.will)
        self._opening[connection] = session
        keep_alive_s = self._keep_alive_s(packet)
        granted = self._granted(packet, assigned, asked, keep_alive_s) if five else NO_PROPERTIES
        answer = ConnAck(present, ReasonCode.SUCCESS, granted)

        def saved(error: NodeError | None) -> None:
            if self._opening.pop(connection, None) is None or session.opening is not connection:
                return  # meanwhile the connection has ended, or the client has opened another one
            if error is not None:
                refuse(ReasonCode.SERVER_UNAVAILABLE, "the session cannot be stored")
                return
            try:
                is_valid = self._server.logins.renew(session)  # meanwhile the login may have ended
            except StoreError:
                refuse(ReasonCode.SERVER_UNAVAILABLE, "the registry cannot be read")
                return
            if is_valid:
                connection.accept(session, answer, keep_alive_s)
            else:
                refuse(ReasonCode.NOT_AUTHORIZED, LOGIN_ENDED)

        def refuse(code: ReasonCode, reason: str) -> None:
            session.will = None
            session.expires_now = not present
            connection.reject(code, reason)
            self._server.sessions.closed(session)

        self._server.sessions.save(session, saved)

    def _admit(self, peer: str, packet: Connect) -> Principal:
        """Check a CONNECT.

        Raises:
            RefusedConnectError: the client may not connect.
        """
        if self._server.is_draining:
            raise RefusedConnectError(ReasonCode.SERVER_UNAVAILABLE, "the node is stopping")
        if not self._rate.take(self._server.now(), peer):
            raise RefusedConnectError(
                ReasonCode.CONNECTION_RATE_EXCEEDED,
                f"more than {self._server.limits.connects_per_s} clients connect per second, or "
                f"{self._server.limits.share_percent}% of them from this address",
            )
        if len(packet.client_id.encode()) > CLIENT_ID_BYTES:
            raise RefusedConnectError(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                f"a client id may have at most {CLIENT_ID_BYTES} bytes",
            )
        if packet.properties.authentication_method is not None:
            raise RefusedConnectError(
                ReasonCode.BAD_AUTHENTICATION_METHOD, "extended authentication is not supported"
            )
        will = packet.will
        if will is not None:
            size = len(will.payload) + len(pack_properties(forwarded(will.properties)))
            if size > WILL_BYTES:
                raise RefusedConnectError(
                    ReasonCode.PACKET_TOO_LARGE, f"a will may have at most {WILL_BYTES} bytes"
                )
            try:
                check_topic(will.topic)
            except ProtocolError as error:
                raise RefusedConnectError(error.code, error.text) from None
        return self._server.access.connect(packet.username, packet.password)

    def _check_will(self, holder: str, packet: Connect, *, kept: bool) -> None:
        """Check that there is room for the will of a session that is kept.

        Raises:
            RefusedConnectError: there is no room.
        """
        will = packet.will
        if kept and will is not None:
            size = len(will.topic.encode()) + len(will.payload)
            size += len(pack_properties(forwarded(will.properties)))
            if not self._server.router.queues.has_room(holder, size):
                raise RefusedConnectError(
                    ReasonCode.QUOTA_EXCEEDED,
                    "this login or address has used its whole share of the store",
                )

    def _keep_alive_s(self, packet: Connect) -> int:
        """Return the keep-alive time of the client, or the server's limit if this is shorter; only
        MQTT 5 can send the limit to the client."""
        asked, limit = packet.keep_alive_s, self._server.limits.keep_alive_s
        if packet.version == VERSION_5 and limit and not 0 < asked <= limit:
            return limit
        return asked

    def _granted(self, packet: Connect, assigned: str, asked: int, keep_alive_s: int) -> Properties:
        """Return the properties of a CONNACK: limits of the server, and values of the CONNECT that
        the server has changed."""
        granted = self._server.sessions.granted(asked)
        return Properties(
            session_expiry_interval=granted if granted != asked else None,
            receive_maximum=self._server.limits.receive_maximum,
            maximum_packet_size=self._server.limits.packet_bytes,
            assigned_client_identifier=assigned or None,
            topic_alias_maximum=ALIASES,
            server_keep_alive=keep_alive_s if keep_alive_s != packet.keep_alive_s else None,
        )


def _will_record(will: Will) -> WillRecord:
    properties = will.properties
    return WillRecord(
        will.topic,
        will.payload,
        will.qos,
        will.retain,
        properties.will_delay_interval or 0,
        properties.message_expiry_interval or 0,
        pack_properties(forwarded(properties)),
    )
