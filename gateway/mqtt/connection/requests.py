"""Packets of connected clients: acknowledgements, subscriptions, pings, DISCONNECT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fieldbrook.gateway.mqtt.protocol.decoding.decoder import decode_client_packet
from fieldbrook.gateway.mqtt.protocol.encoding import PINGRESP, encode
from fieldbrook.gateway.mqtt.protocol.errors import ProtocolViolationError
from fieldbrook.gateway.mqtt.protocol.packets import (
    Auth,
    Disconnect,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    Unsubscribe,
)
from fieldbrook.gateway.mqtt.protocol.reason_codes import FAILURE, ReasonCode
from fieldbrook.gateway.mqtt.sessions.session import Session

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.connection.connection import Connection
    from fieldbrook.gateway.mqtt.listener.server import MqttServer


class Requests:
    """Carries out the requests of clients, for all connections."""

    def __init__(self, server: MqttServer) -> None:
        self._server = server

    def handle(self, connection: Connection, session: Session, first: int, body: bytes) -> None:
        """Carry out a packet. `Inbox.take_event` handles most PUBLISH packets instead.

        Raises:
            ProtocolError: the packet is against the rules.
        """
        server, queues = self._server, self._server.router.queues
        match decode_client_packet(connection.version, first, body):
            case Publish() as packet:
                connection.inbox.take(session, packet)
            case PubAck(packet_id=packet_id):
                queues.acknowledged(session, packet_id)
            case PubRec(packet_id=packet_id, code=code):
                if code >= FAILURE:
                    queues.acknowledged(session, packet_id)
                elif not queues.received(session, packet_id):
                    code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                    connection.write(encode(connection.version, PubRel(packet_id, code)))
            case PubRel(packet_id=packet_id):
                self._release(connection, session, packet_id)
            case PubComp(packet_id=packet_id):
                queues.completed(session, packet_id)
            case Subscribe() as packet:
                server.subscribing.subscribe(connection, session, packet)
            case Unsubscribe() as packet:
                server.subscribing.unsubscribe(connection, session, packet)
            case PingReq():
                connection.write(PINGRESP)
            case Disconnect() as packet:
                self._disconnect(connection, session, packet)
            case Auth():
                raise ProtocolViolationError("no extended authentication was begun")
            case _:  # a second CONNECT
                raise ProtocolViolationError("CONNECT may be sent only once")

    def _disconnect(self, connection: Connection, session: Session, packet: Disconnect) -> None:
        expiry_s = packet.properties.session_expiry_interval
        if expiry_s and (not session.is_kept or session.expires_now):
            raise ProtocolViolationError("DISCONNECT sets a session expiry, but CONNECT did not")
        if expiry_s is not None:
            self._server.sessions.set_expiry(session, expiry_s)
        if packet.code is ReasonCode.NORMAL_DISCONNECTION:
            session.will = None
        connection.close()

    def _release(self, connection: Connection, session: Session, packet_id: int) -> None:
        """Answer PUBREL. A kept session stores the release first: otherwise, after a crash, the
        next message with this packet id could count as a duplicate of the last one. While the
        release cannot be stored, the client waits."""
        if packet_id not in session.received and packet_id not in session.releasing:
            code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            connection.write(encode(connection.version, PubComp(packet_id, code)))
            return

        def stored() -> None:
            session.received.discard(packet_id)
            session.releasing.discard(packet_id)
            session.count_packet_ids()
            connection.write(encode(connection.version, PubComp(packet_id)))

        if session.is_kept and packet_id not in session.releasing:
            session.note_release(packet_id)
        connection.save_surely(session, stored)
