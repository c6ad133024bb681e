"""The MQTT server: its ports, its connections, and what they share."""

from __future__ import annotations

import asyncio
import collections
import logging
import secrets
import socket
import ssl
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from fieldbrook.core import clock
from fieldbrook.core.errors import NodeError, StoreError, TooManyRequestsError
from fieldbrook.core.settings import Settings
from fieldbrook.gateway.delivery.outbox import MessageRefusedError
from fieldbrook.gateway.events.handling import EventService, Login
from fieldbrook.gateway.events.refusals import TEMPORARY
from fieldbrook.gateway.listening.connections import Connections, IdleConnection, connections_limit
from fieldbrook.gateway.listening.listener import Listener
from fieldbrook.gateway.listening.sockets import bind
from fieldbrook.gateway.listening.tls import TlsListener
from fieldbrook.gateway.memory_budget import MemoryBudget, request_budget
from fieldbrook.gateway.mqtt import inspection
from fieldbrook.gateway.mqtt.event_topics import EventTopic, submit_event
from fieldbrook.gateway.mqtt.listener.access import (
    ANYBODY,
    Access,
    Principal,
    RefusedConnectError,
)
from fieldbrook.gateway.mqtt.listener.connection import Connection
from fieldbrook.gateway.mqtt.listener.forwarded import (
    forwarded,
    pack_properties,
    unpack_properties,
)
from fieldbrook.gateway.mqtt.listener.incoming import Publishing
from fieldbrook.gateway.mqtt.listener.inspected import Inspection
from fieldbrook.gateway.mqtt.listener.limits import (
    ALIASES,
    CLIENT_ID_BYTES,
    FILTERS_BYTES,
    TOPIC_BYTES,
    TOPIC_LEVELS,
    WILL_BYTES,
    ConnectRate,
    Limits,
)
from fieldbrook.gateway.mqtt.listener.relay import WEBSOCKET_SOCKET, RelayedConnection
from fieldbrook.gateway.mqtt.listener.routing import Done, Router
from fieldbrook.gateway.mqtt.listener.session import (
    Message,
    Session,
    Subscribed,
    WillRecord,
)
from fieldbrook.gateway.mqtt.listener.sessions import Sessions, requested_expiry_s
from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.errors import ProtocolError
from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    ConnAck,
    Connect,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from fieldbrook.gateway.mqtt.protocol.properties import NO_PROPERTIES, Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import FAILURE, ReasonCode
from fieldbrook.gateway.mqtt.protocol.topics import check_filter, check_topic_name, parse_shared
from fieldbrook.gateway.peers import Answers
from fieldbrook.gateway.replies import EventReply
from fieldbrook.observability import metrics
from fieldbrook.security import tls
from fieldbrook.storage.mqtt import MqttStore, Operation, StoreWriter
from fieldbrook.storage.project.outbox import is_parked
from fieldbrook.storage.registry.service import RegistryReader

log = logging.getLogger(__name__)

_SWEEP_S = 0.1
_SWEEPS = 10  # every connection is checked once in so many sweeps
_RETRY_S = 1.0
_RECHECKED_PER_TURN = 100
_DRAIN_LIMIT_S = 1.0
_WILLS_LIMIT = 10_000
_HANDLED_BUDGET = 64 << 20  # payload bytes of all messages that are being handled


class _NotTls:
    """Ends a connection that does not begin with a TLS handshake."""

    async def open(self, connection: socket.socket) -> bool:
        """See `listening.tls.Plain`."""
        return False


class _Unconnected:
    """Counts the connections; those that have not sent CONNECT may be closed for others."""

    def __init__(self, connections: set[Connection]) -> None:
        self._connections = connections

    @property
    def connections(self) -> int:
        """See `connections.Port`."""
        return len(self._connections)

    @property
    def descriptors(self) -> int:
        """See `connections.Port`."""
        return len(self._connections)

    def idle(self) -> Iterator[IdleConnection]:
        """See `connections.Port`."""
        return (
            IdleConnection(each.opened_at, each.drop)
            for each in self._connections
            if each.session is None and not each.is_connecting
        )


class MqttServer:
    """All connections of one process; every method is called in its loop."""

    def __init__(
        self,
        settings: Settings,
        run_dir: Path,
        reader: RegistryReader,
        events: EventService,
    ) -> None:
        """Open the store and load the sessions; no port is open yet.

        Raises:
            StoreError: the store cannot be opened.
        """
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self.limits = limits = Limits.of(settings)
        self._settings = settings
        self._run_dir = run_dir
        self._events = events
        self.budget = MemoryBudget(_HANDLED_BUDGET)
        self.partial_budget = request_budget(limits.packet_bytes)
        self._store = MqttStore(settings.data / "mqtt", limits.store_bytes)
        self._failure: StoreError | None = None
        self._writer = StoreWriter(self._store, self.loop, self._store_failed)
        self.access = Access(
            reader,
            settings.mqtt_device_topic_list,
            anonymous=settings.mqtt_anonymous,
            any_login=settings.mqtt_logins,
            trusts_connection=settings.mqtt_trust_connection,
        )
        self.router = Router(limits, self._store, self._write, self.access.opens)
        self.router.is_parked = is_parked(settings.data)
        self.publishing = Publishing(events, reader, self.access, self.router, self.budget)
        self.connections: set[Connection] = set()
        self._by_address: collections.Counter[str] = collections.Counter()
        self._opening: dict[Connection, Session] = {}
        self._rate = ConnectRate(limits.connects_per_s)
        self._wills: set[asyncio.Task[None]] = set()
        self._draining = False
        self._recheck: asyncio.Task[None] | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._listener: Listener | None = None
        self._relay: asyncio.Server | None = None
        self.sessions = Sessions(limits, self._store, self._write, self.router, self._publish_will)

    async def start(self) -> None:
        """Open the port and the socket of the HTTP gateways; see `gateway.MqttInput`."""
        settings = self._settings
        identity = tls.identity_of(settings) if settings.mqtt_tls else None
        if identity is not None:
            ca = settings.mqtt_client_ca
            identity = identity._replace(client_ca=ca and ca.absolute())
        self._identity = identity
        self._tls: ssl.SSLContext | None = None
        at = bind(settings.bind, settings.mqtt_port, shared=False)
        ceiling = connections_limit(tls=False, most=self.limits.connections)
        accepted = Connections(ceiling, metrics.MQTT_CONNECTIONS_EVICTED)
        accepted.ports.append(_Unconnected(self.connections))
        if identity is None:
            protocol = partial(Connection, self, "tcp")
            self._listener = Listener(at, protocol, accepted)
        else:
            self._tls = tls.server_context(identity)
            self._certificate_watch = tls.CertificateWatch(identity)
            protocol = partial(Connection, self, "tls")
            self._listener = TlsListener(at, self._tls, protocol, accepted, _NotTls())
        self._relay = await self.loop.create_unix_server(
            partial(RelayedConnection, self), str(self._run_dir / WEBSOCKET_SOCKET)
        )
        self._sweeper = self.loop.create_task(self._sweep())
        log.info(
            "MQTT clients are accepted on port %d, up to %d at once", settings.mqtt_port, ceiling
        )

    # ---------------------------------------------------------------- connections

    def opened(self, connection: Connection) -> None:
        """Register a connection, or end it when its address has too many."""
        self.connections.add(connection)
        address = connection.address
        self._by_address[address] += 1
        too_many = self._by_address[address] > self.limits.connections_per_address
        if address and (too_many or self._draining):
            metrics.add(metrics.MQTT_CONNECTS_REFUSED)
            connection.drop()

    def renamed(self, connection: Connection, address: str) -> None:
        """Count a relayed connection for the address of its client."""
        self._forget_address(connection.address)
        connection.address = address
        self._by_address[address] += 1
        if self._by_address[address] > self.limits.connections_per_address:
            metrics.add(metrics.MQTT_CONNECTS_REFUSED)
            connection.drop()

    def _forget_address(self, address: str) -> None:
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def closed(self, connection: Connection) -> None:
        """Forget a connection, and its session unless another connection has taken it over."""
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        self._forget_address(connection.address)
        session = connection.session or self._opening.pop(connection, None)
        if session is not None and connection in (session.wire, session.opening):
            self.sessions.closed(session)

    # ---------------------------------------------------------------- CONNECT

    def connect(self, connection: Connection, packet: Connect) -> None:
        """Answer a CONNECT, when the session is stored where it must be."""
        try:
            principal = self._admit(packet)
            assigned = "" if packet.client_id else f"auto-{secrets.token_hex(8)}"
            five = packet.version == VERSION_5
            asked = requested_expiry_s(
                five, packet.clean_start, packet.properties.session_expiry_interval
            )
            session, present = self.sessions.open(
                principal,
                packet.client_id or assigned,
                clean_start=packet.clean_start,
                expiry_s=asked,
                wire=connection,
            )
        except RefusedConnectError as error:
            metrics.add(metrics.MQTT_CONNECTS_REFUSED)
            log.debug("%s may not connect: %s", connection.address, error)
            connection.reject(error.code, str(error))
            return
        session.version = packet.version
        session.will = None if packet.will is None else _will_record(packet.will)
        self._opening[connection] = session
        keep_alive_s = packet.keep_alive_s
        limit = self.limits.keep_alive_s
        if five and limit and not 0 < keep_alive_s <= limit:
            keep_alive_s = limit
        answer = ConnAck(
            present,
            ReasonCode.SUCCESS,
            self._granted(packet, assigned, asked, keep_alive_s) if five else NO_PROPERTIES,
        )

        def saved(error: NodeError | None) -> None:
            if self._opening.pop(connection, None) is None or session.opening is not connection:
                return  # it has gone, or another connection of the client came meanwhile
            if error is not None:
                session.expires_now = not present
                connection.reject(ReasonCode.SERVER_UNAVAILABLE, "the session cannot be stored")
                self.sessions.closed(session)
                return
            connection.accept(session, answer, keep_alive_s, principal)

        self.sessions.save(session, saved)

    def _admit(self, packet: Connect) -> Principal:
        """Check a CONNECT.

        Raises:
            RefusedConnectError: its client may not connect.
        """
        if self._draining:
            raise RefusedConnectError(ReasonCode.SERVER_UNAVAILABLE, "the node is stopping")
        if not self._rate.take(self.now()):
            raise RefusedConnectError(
                ReasonCode.CONNECTION_RATE_EXCEEDED,
                f"more than {self.limits.connects_per_s} clients connect per second",
            )
        if len(packet.client_id.encode()) > CLIENT_ID_BYTES:
            raise RefusedConnectError(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                f"a client id may have {CLIENT_ID_BYTES} bytes",
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
                    ReasonCode.PACKET_TOO_LARGE, f"a will may have {WILL_BYTES} bytes"
                )
            try:
                self.check_topic(will.topic)
            except ProtocolError as error:
                raise RefusedConnectError(error.code, error.text) from None
        return self.access.connect(packet.username, packet.password)

    def _granted(self, packet: Connect, assigned: str, asked: int, keep_alive_s: int) -> Properties:
        """The properties of a CONNACK: what the server offers, and what it has changed."""
        granted = self.sessions.granted(asked)
        return Properties(
            session_expiry_interval=granted if granted != asked else None,
            receive_maximum=self.limits.receive_maximum,
            maximum_packet_size=self.limits.packet_bytes,
            assigned_client_identifier=assigned or None,
            topic_alias_maximum=ALIASES,
            server_keep_alive=keep_alive_s if keep_alive_s != packet.keep_alive_s else None,
        )

    def login_of(self, principal: Principal) -> Login | None:
        """What fills in the token of messages of this client."""
        return None if principal is ANYBODY else self.access.login_for_events(principal)

    def check_topic(self, topic: str) -> None:
        """Check the topic of a message.

        Raises:
            ProtocolError: it is no topic, or too long, or too deep.
        """
        check_topic_name(topic, max_levels=TOPIC_LEVELS, max_bytes=TOPIC_BYTES)

    # ---------------------------------------------------------------- SUBSCRIBE

    def subscribe(self, connection: Connection, session: Session, packet: Subscribe) -> None:
        """Subscribe a client, and answer when the session is stored."""
        identifier = next(iter(packet.properties.subscription_identifiers), 0)
        codes: list[int] = []
        new: list[tuple[Subscribed, Subscription, bool]] = []
        for wanted in packet.subscriptions:
            code = self._may_subscribe(session, wanted)
            codes.append(code if code < FAILURE or connection.version == VERSION_5 else FAILURE)
            if code >= FAILURE:
                continue
            subscribed = Subscribed(
                wanted.filter,
                wanted.qos,
                wanted.no_local,
                wanted.retain_as_published,
                identifier,
            )
            new.append((subscribed, wanted, wanted.filter in session.subscriptions))
            self.router.subscribe(session, subscribed)

        def saved(error: NodeError | None) -> None:
            if session.wire is not connection:
                return
            if error is not None:
                for subscribed, _, _ in new:
                    self.router.unsubscribe(session, subscribed.topic_filter)
                connection.end(ReasonCode.QUOTA_EXCEEDED, "the subscription cannot be stored")
                return
            connection.send(encode(connection.version, SubAck(packet.packet_id, tuple(codes))))
            for subscribed, wanted, existed in new:
                if wanted.retain_handling == 2 or (wanted.retain_handling == 1 and existed):
                    continue
                if parse_shared(subscribed.topic_filter) is None:
                    self.router.send_retained(session, subscribed)

        self.sessions.save(session, saved)

    def _may_subscribe(self, session: Session, wanted: Subscription) -> int:
        """The reason code for one subscription: the granted QoS, or why it is refused."""
        topic_filter = wanted.filter
        try:
            check_filter(topic_filter, max_levels=TOPIC_LEVELS, max_bytes=TOPIC_BYTES)
        except ProtocolError as error:
            return error.code
        shared = parse_shared(topic_filter)
        plain = topic_filter if shared is None else shared[1]
        if not self.access.may_subscribe(session.principal, plain):
            return ReasonCode.NOT_AUTHORIZED
        known = session.subscriptions
        if topic_filter not in known:
            used = sum(len(each.encode()) for each in known) + len(topic_filter.encode())
            if len(known) >= self.limits.subscriptions or used > FILTERS_BYTES:
                return ReasonCode.QUOTA_EXCEEDED
        return wanted.qos

    def unsubscribe(self, connection: Connection, session: Session, packet: Unsubscribe) -> None:
        """End subscriptions of a client, and answer when the session is stored."""
        codes = tuple(
            ReasonCode.SUCCESS
            if self.router.unsubscribe(session, topic_filter)
            else ReasonCode.NO_SUBSCRIPTION_EXISTED
            for topic_filter in packet.filters
        )

        def saved(error: NodeError | None) -> None:
            if session.wire is connection:
                connection.send(encode(connection.version, UnsubAck(packet.packet_id, codes)))

        self.sessions.save(session, saved)

    # ---------------------------------------------------------------- messages of the node

    async def publish(self, topic: str, payload: bytes) -> None:
        """See `gateway.MqttInput`.

        Raises:
            NodeError: it cannot be stored now.
            MessageRefusedError: nobody can subscribe to this topic.
        """
        if self.publishing.event_topic(topic.encode()) is not None:
            raise MessageRefusedError("a project takes events on this topic")
        try:
            self.check_topic(topic)
        except ProtocolError as error:
            raise MessageRefusedError(error.text) from None
        await self.distribute(Message(topic, payload, 1))

    async def distribute(self, message: Message) -> int:
        """Deliver a message to subscribers; returns how many get it, when all of it is stored.

        Raises:
            NodeError: it cannot be stored, or not retained.
        """
        done: asyncio.Future[None] = self.loop.create_future()

        def stored(error: NodeError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        found = self.router.publish(message, stored)
        await done
        return found

    async def _submit(
        self, topic: EventTopic, payload: bytes, login: Login | None = None
    ) -> EventReply | None:
        """Submit an event of the node's own until it was handled or refused for good."""
        while True:
            answered: asyncio.Future[EventReply] = self.loop.create_future()
            try:
                submit_event(
                    self._events, topic, payload, answered.set_result, resend=True, login=login
                )
            except NodeError as error:
                self.publishing.log_refusal(topic.channel, error)
                return None
            reply = await answered
            if not isinstance(reply.error, TEMPORARY):
                if reply.error is not None:
                    self.publishing.log_refusal(topic.channel, reply.error)
                return reply
            await asyncio.sleep(_RETRY_S)

    def _publish_will(self, session: Session, will: WillRecord) -> None:
        if len(self._wills) >= _WILLS_LIMIT:
            metrics.add(metrics.MQTT_UNDELIVERED)
            return
        task = self.loop.create_task(self._send_will(session, will))
        self._wills.add(task)
        task.add_done_callback(self._wills.discard)

    async def _send_will(self, session: Session, will: WillRecord) -> None:
        principal = session.principal
        topic = self.publishing.event_topic(will.topic.encode())
        if topic is not None:
            await self._submit(topic, will.payload, self.login_of(principal))
            return
        if not self.access.may_publish(principal, will.topic):
            log.info("the will of a client on a topic that it may not use is dropped")
            return
        expires = clock.now_ms() + 1_000 * will.expiry_s if will.expiry_s else 0
        message = Message(
            will.topic,
            will.payload,
            will.qos,
            will.retain,
            unpack_properties(will.properties),
            expires,
        )
        try:
            await self.distribute(message)
        except NodeError as error:
            log.warning("the will of a client is dropped: %s", error)

    def outgoing_properties(self, message: Message, identifiers: tuple[int, ...]) -> Properties:
        """The properties of a PUBLISH to a subscriber."""
        properties = message.properties
        if not identifiers and not message.expires_at_ms:
            return properties
        left = None
        if message.expires_at_ms:
            left = max(1, (message.expires_at_ms - clock.now_ms() + 999) // 1_000)
        return Properties(
            payload_format_indicator=properties.payload_format_indicator,
            message_expiry_interval=left,
            content_type=properties.content_type,
            response_topic=properties.response_topic,
            correlation_data=properties.correlation_data,
            user_properties=properties.user_properties,
            subscription_identifiers=identifiers,
        )

    # ---------------------------------------------------------------- upkeep

    def _write(self, operations: Sequence[Operation], done: Done | None) -> None:
        try:
            self._writer.write(operations, done)
        except TooManyRequestsError as error:
            if done is None:
                # A removal; the row stays, and its message is sent again as a duplicate.
                log.error("the MQTT store does not keep up: %s", error)
                return
            self.loop.call_soon(done, error)

    async def written(self) -> None:
        """Return when all that was handed to the store so far is on disk.

        Raises:
            NodeError: the store failed.
        """
        done: asyncio.Future[None] = self.loop.create_future()

        def finished(error: NodeError | None) -> None:
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self._write((), finished)
        await done

    def answers(self) -> Answers:
        """See `gateway.MqttInput`."""
        return inspection.answers(Inspection(self))

    def registry_changed(self) -> None:
        """Check the rights of connected clients again, some in each turn of the loop."""
        self.publishing.registry_changed()
        if self._recheck is None or self._recheck.done():
            self._recheck = self.loop.create_task(self._check_logins())

    async def _check_logins(self) -> None:
        await asyncio.sleep(0)
        logged_in = [each for each in self.connections if each.principal.login is not None]
        for number, connection in enumerate(logged_in):
            if number % _RECHECKED_PER_TURN == _RECHECKED_PER_TURN - 1:
                await asyncio.sleep(0)
            session = connection.session
            if session is None or session.wire is not connection:
                continue
            principal = self.access.renewed(connection.principal)
            if principal is None:
                connection.end(ReasonCode.NOT_AUTHORIZED, "the login is not valid any more")
                continue
            connection.principal = session.principal = principal
            for topic_filter in list(session.subscriptions):
                shared = parse_shared(topic_filter)
                plain = topic_filter if shared is None else shared[1]
                if not self.access.may_subscribe(principal, plain):
                    self.router.unsubscribe(session, topic_filter)

    async def _sweep(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(_SWEEP_S)
            number += 1
            now = self.now()
            for connection in [
                each for each in self.connections if id(each) // 64 % _SWEEPS == number % _SWEEPS
            ]:
                connection.check(now)
            if number % _SWEEPS == 0:
                self.sessions.expire()
                self.router.expire_retained()
                self._release()
                self._renew()

    def _release(self) -> None:
        """Deliver what was parked after a restore, when an operator has released it."""
        if not self.router.is_parked or is_parked(self._settings.data):
            return
        self.router.is_parked = False
        for session in self.sessions.all():
            self.router.pump(session)

    def _renew(self) -> None:
        """Use a renewed certificate from the next connection on."""
        if self._tls is None or not self._certificate_watch.has_changed():
            return
        assert self._identity is not None
        try:
            tls.load(self._tls, self._identity)
        except NodeError as error:
            log.warning(
                "cannot load the renewed certificate, the previous one stays in use: %s", error
            )
        else:
            log.info("MQTT clients get the renewed certificate %s", self._identity.certificate)

    def measure(self) -> None:
        """Write what there is to the metrics."""
        metrics.put(metrics.MQTT_CONNECTIONS, len(self.connections))
        metrics.put(metrics.MQTT_SESSIONS, len(self.sessions))
        metrics.put(metrics.MQTT_SUBSCRIPTIONS, self.router.subscription_count)
        metrics.put(metrics.MQTT_RETAINED, self.router.retained_count)
        metrics.put(metrics.MQTT_STORE_BYTES, self._store.size_bytes)
        unacknowledged = sum(each.unacknowledged for each in self.connections)
        metrics.put(metrics.MQTT_IN_FLIGHT, unacknowledged)

    def _store_failed(self, error: StoreError | None) -> None:
        self._failure = error

    def watch(self) -> StoreError | None:
        """See `gateway.MqttInput`."""
        return self._failure

    async def refuse_more(self) -> None:
        """Accept no more connections; end each when its messages are acknowledged, or soon."""
        self._draining = True
        if self._listener is not None:
            self._listener.close()
        if self._relay is not None:
            self._relay.close()
        limit = self.now() + _DRAIN_LIMIT_S
        while self.connections:
            late = self.now() >= limit
            for connection in list(self.connections):
                if late or not connection.unacknowledged:
                    connection.end(ReasonCode.SERVER_SHUTTING_DOWN, "the node is stopping")
            if late:
                break
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """See `gateway.MqttInput`; writes what waits to the store."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.drop()
        await asyncio.sleep(0)
        for task in self._wills:
            task.cancel()
        await self._writer.close()
        self._store.close()


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
