"""The MQTT server: its ports, its connections, and their shared state."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from fieldbrook.core.errors import NodeError, StoreError
from fieldbrook.core.settings import Settings
from fieldbrook.gateway.base import essential
from fieldbrook.gateway.delivery.other_hosts import OtherHosts
from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.listening.connections import Connections, IdleConnection, connections_limit
from fieldbrook.gateway.listening.listener import Listener
from fieldbrook.gateway.listening.sockets import bind
from fieldbrook.gateway.listening.tls import TlsListener
from fieldbrook.gateway.memory_budget import MemoryBudget
from fieldbrook.gateway.mqtt import inspection
from fieldbrook.gateway.mqtt.connection.connecting import Connecting
from fieldbrook.gateway.mqtt.connection.connection import Connection
from fieldbrook.gateway.mqtt.connection.incoming import Publishing
from fieldbrook.gateway.mqtt.connection.requests import Requests
from fieldbrook.gateway.mqtt.connection.subscribing import Subscribing
from fieldbrook.gateway.mqtt.connection.time_slices import TimeSlices
from fieldbrook.gateway.mqtt.listener.inspection import Inspection
from fieldbrook.gateway.mqtt.listener.logins import Logins
from fieldbrook.gateway.mqtt.listener.moving import Moving
from fieldbrook.gateway.mqtt.listener.own_messages import OwnMessages
from fieldbrook.gateway.mqtt.listener.relay import RelayedConnection
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.gateway.mqtt.sessions.access import Access, Principal, RefusedConnectError
from fieldbrook.gateway.mqtt.sessions.limits import REPLIES_WAITING, Limits
from fieldbrook.gateway.mqtt.sessions.routing import Done, Router
from fieldbrook.gateway.mqtt.sessions.session import Session, session_key
from fieldbrook.gateway.mqtt.sessions.sessions import Sessions
from fieldbrook.gateway.mqtt.websocket import WEBSOCKET_SOCKET
from fieldbrook.gateway.peers import Answers
from fieldbrook.observability import metrics
from fieldbrook.security import tls
from fieldbrook.storage.mqtt import MqttStore, Operation, StoredMessage, StoreWriter
from fieldbrook.storage.project.outbox import is_parked
from fieldbrook.storage.registry.service import RegistryReader

log = logging.getLogger(__name__)

_SWEEP_S = 0.1
_SWEEPS = 10  # every connection is checked once in this number of sweeps
_DRAIN_LIMIT_S = 1.0
_HANDLED_BUDGET = 64 << 20  # payload bytes of all messages that are being handled


class _NotTls:
    """Ends a connection that does not begin with a TLS handshake."""

    async def open(self, connection: socket.socket) -> bool:
        """See `listening.tls.Plain`."""
        return False


class _Unconnected:
    """Counts the connections. Those without a CONNECT yet may be closed to make room for others."""

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
        *,
        hosts: OtherHosts | None = None,
    ) -> None:
        """Open the store and load the sessions; no port is open yet.

        Args:
            settings: the node's settings.
            run_dir: the folder of sockets.
            reader: the registry.
            events: takes the events of messages.
            hosts: the other hosts of a cluster. Then clients that connect while this host stops
                are refused, so that they connect to another host.

        Raises:
            StoreError: the store cannot be opened.
        """
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self.limits = limits = Limits.of(settings)
        self._settings = settings
        self._run_dir = run_dir
        self.moving = None if hosts is None else Moving(self, hosts)
        self.budget = MemoryBudget(_HANDLED_BUDGET)
        self.incomplete = limits.incomplete()
        self.unwritten = limits.shared(limits.store_bytes)
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
        self.slices = TimeSlices(self.loop)
        self.router = Router(limits, self._store, self._write, self.access, self.slices)
        self.router.queues.is_parked = is_parked(settings.data)
        self.own_messages = OwnMessages(self, events)
        self.sessions = Sessions(
            limits,
            self._store,
            self._write,
            self.router,
            self.own_messages.publish_will,
            self.loop.call_later,
        )
        self.publishing = self._publishing(events, reader)
        self.connections: set[Connection] = set()
        self._ceiling = connections_limit(tls=False, most=limits.connections)
        self._by_address = limits.shared(self._ceiling)
        self._by_login = limits.shared(self._ceiling)
        self.connecting = Connecting(self)
        self.subscribing = Subscribing(self)
        self.requests = Requests(self)
        self.logins = Logins(self)
        self.is_draining = False
        self._sweeper: asyncio.Task[None] | None = None
        self._listener: Listener | None = None
        self._relay: asyncio.Server | None = None

    def _publishing(self, events: EventService, reader: RegistryReader) -> Publishing:
        return Publishing(
            events,
            reader,
            self.access,
            self.router,
            self.budget,
            self.sessions.save_surely,
            self.slices,
            self.limits.shared(REPLIES_WAITING),
        )

    async def start(self) -> None:
        """Open the port and the socket of the HTTP gateways; see `gateway.MqttInput`."""
        settings = self._settings
        self.router.retained.assign(self.access.project_of)
        self.router.retained.drop_of_removed(self.access.has_project)
        identity = tls.identity_of(settings) if settings.mqtt_tls else None
        if identity is not None:
            ca = settings.mqtt_client_ca
            identity = identity._replace(client_ca=ca and ca.absolute())
        self._identity = identity
        self._tls: ssl.SSLContext | None = None
        at = bind(settings.bind, settings.mqtt_port, shared=False)
        accepted = Connections(self._ceiling, metrics.MQTT_CONNECTIONS_EVICTED)
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
        self._sweeper = essential(self.loop.create_task(self._sweep()))
        log.info(
            "MQTT clients are accepted on port %d, up to %d at once",
            settings.mqtt_port,
            self._ceiling,
        )

    # ---------------------------------------------------------------- connections

    def opened(self, connection: Connection) -> None:
        """Register a connection, or end it if its address has too many connections."""
        self.connections.add(connection)
        self._by_address.add(connection.peer)
        if connection.peer and (self._has_too_many(connection.peer) or self.is_draining):
            metrics.add(metrics.MQTT_CONNECTS_REFUSED)
            connection.drop()

    def renamed(self, connection: Connection, address: str) -> None:
        """Count a relayed connection for the address of its client."""
        self._by_address.add(connection.peer, -1)
        connection.name(address)
        self._by_address.add(connection.peer)
        if self._has_too_many(connection.peer):
            metrics.add(metrics.MQTT_CONNECTS_REFUSED)
            connection.drop()

    def _has_too_many(self, peer: str) -> bool:
        most = min(self.limits.connections_per_address, self._by_address.share)
        return self._by_address.of(peer) > most

    def check_login(self, principal: Principal, client_id: str) -> None:
        """Check that a login may have one more connection.

        Raises:
            RefusedConnectError: the login has too many connections.
        """
        if not principal.name:
            return
        known = self.sessions.get(session_key(principal.name, client_id))
        if known is not None and known.wire is not None:
            return  # the client replaces its own connection
        if not self._by_login.has(principal.name):
            raise RefusedConnectError(
                ReasonCode.QUOTA_EXCEEDED,
                f"this login has {self._by_login.of(principal.name)} connections, which is the "
                "limit",
            )

    def accepted(self, session: Session) -> None:
        """Count a connection for the login of its client."""
        if session.principal_name:
            self._by_login.add(session.principal_name)

    def closed(self, connection: Connection) -> None:
        """Forget a connection, and its session unless another connection has taken it over."""
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        self._by_address.add(connection.peer, -1)
        if connection.session is not None and connection.session.principal_name:
            self._by_login.add(connection.session.principal_name, -1)
        session = connection.session or self.connecting.forget(connection)
        if session is not None and connection in (session.wire, session.opening):
            self.sessions.closed(session)

    async def publish(self, topic: str, payload: bytes, project_id: int) -> None:
        """See `gateway.MqttInput`."""
        await self.own_messages.publish(topic, payload, project_id)

    # ---------------------------------------------------------------- upkeep

    def _write(self, operations: Sequence[Operation], done: Done | None) -> None:
        try:
            self._writer.write(operations, done)
        except NodeError as error:  # the store is too slow, or is closed
            if done is None:
                # A removal has failed: the row stays, and its message is sent again as a duplicate.
                log.error("cannot remove a row from the MQTT store: %s", error)
                return
            # Its traceback would keep the operations in memory.
            self.loop.call_soon(done, error.with_traceback(None))

    async def written(self, operations: Sequence[Operation] = ()) -> None:
        """Return when these operations, and all before them, are on disk.

        Raises:
            NodeError: the store failed.
        """
        done: asyncio.Future[None] = self.loop.create_future()

        def finished(error: NodeError | None) -> None:
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self._write(operations, finished)
        await done

    def queue_rows(
        self, uid: int, after: int, limit: int, limit_bytes: int
    ) -> list[tuple[int, StoredMessage | None]]:
        """Return rows of a session's queue; see `MqttStore.queue`."""
        return self._store.queue(uid, after, limit, limit_bytes)

    def answers(self) -> Answers:
        """See `gateway.MqttInput`."""
        return inspection.answers(Inspection(self))

    @property
    def is_idle(self) -> bool:
        """See `gateway.MqttInput`."""
        return not self.connections

    def registry_changed(self) -> None:
        """Check the rights of connected clients again, some at a time."""
        self.publishing.registry_changed()
        self.router.retained.drop_of_removed(self.access.has_project)
        self.logins.registry_changed()

    async def _sweep(self) -> None:
        number = 0
        while True:
            # Without clients, there is only the work of each full round of sweeps.
            await asyncio.sleep(_SWEEP_S if self.connections else _SWEEPS * _SWEEP_S)
            number = number + 1 if self.connections else 0
            now = self.now()
            for connection in [
                each for each in self.connections if id(each) // 64 % _SWEEPS == number % _SWEEPS
            ]:
                connection.check(now)
            if number % _SWEEPS == 0:
                self.sessions.expire()
                self.router.retained.expire()
                self._release()
                self._renew()

    def _release(self) -> None:
        """Deliver messages held back after a restore, once an operator has released them."""
        if not self.router.queues.is_parked or is_parked(self._settings.data):
            return
        self.router.queues.is_parked = False
        for session in self.sessions.all():
            self.router.queues.pump(session)

    def _renew(self) -> None:
        """Use a renewed certificate for new connections."""
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
        """Set the metrics of connections and sessions."""
        metrics.put(metrics.MQTT_CONNECTIONS, len(self.connections))
        metrics.put(metrics.MQTT_SESSIONS, len(self.sessions))
        metrics.put(metrics.MQTT_SUBSCRIPTIONS, self.router.subscription_count)
        metrics.put(metrics.MQTT_RETAINED, len(self.router.retained))
        metrics.put(metrics.MQTT_STORE_BYTES, self._store.size_bytes)
        unacknowledged = sum(len(each.inbox) for each in self.connections)
        metrics.put(metrics.MQTT_IN_FLIGHT, unacknowledged)

    def _store_failed(self, error: StoreError | None) -> None:
        self._failure = error

    def watch(self) -> StoreError | None:
        """See `gateway.MqttInput`."""
        return self._failure

    async def refuse_more(self) -> None:
        """Stop accepting; end each connection when its messages are acknowledged, or soon."""
        self.is_draining = True
        if self._listener is not None:
            self._listener.close(refuses=self.moving is not None)
        if self._relay is not None:
            self._relay.close()
        limit = self.now() + _DRAIN_LIMIT_S
        while self.connections:
            late = self.now() >= limit
            for connection in list(self.connections):
                if late or not connection.inbox:
                    connection.end(ReasonCode.SERVER_SHUTTING_DOWN, "the node is stopping")
            if late:
                break
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """See `gateway.MqttInput`; writes the waiting operations to the store."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.logins.close()
        for connection in list(self.connections):
            connection.drop()
        await asyncio.sleep(0)
        self.own_messages.cancel_wills()
        await self._writer.close()
        self._store.close()
