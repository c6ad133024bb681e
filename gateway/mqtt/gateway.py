"""The MQTT gateway: turns messages on a project's topics into events.

Devices connect to the node itself, or to an external broker, of which the node is a client. In both
cases a message is acknowledged after the project has committed its event. The gateway also delivers
MQTT messages and API calls of handlers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fieldbrook import __version__
from fieldbrook.actors import messages as m
from fieldbrook.actors.runtime import Address
from fieldbrook.actors.wire import BY_MQTT, DELIVERY, REDELIVERY, WireEvent
from fieldbrook.core.errors import MalformedMessageError, NodeError, StoreError
from fieldbrook.gateway.base import GatewayActor, essential
from fieldbrook.gateway.delivery.api_calls import ApiCaller
from fieldbrook.gateway.delivery.other_hosts import OtherHosts, serve_hosts
from fieldbrook.gateway.delivery.outbox import OutboxConsumer, Publish, deliveries
from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.events.refusals import TEMPORARY, Refusals
from fieldbrook.gateway.links.cluster_hosts import ClusterHosts
from fieldbrook.gateway.links.pending_event import Settle
from fieldbrook.gateway.metrics.publisher_activity import PUBLISHERS, answer_publishers
from fieldbrook.gateway.mqtt.event_topics import WRONG_TOPIC, masked, read_topic, submit_event
from fieldbrook.gateway.mqtt.old_broker.drain import drain
from fieldbrook.gateway.peers import Answers, serve_peers
from fieldbrook.gateway.registry_client import SocketRegistryClient
from fieldbrook.gateway.replies import EventReply
from fieldbrook.observability import metrics
from fieldbrook.security import node_secrets
from fieldbrook.storage.lmdb.condition import STATES, store_condition
from fieldbrook.storage.registry.lease import Lease
from fieldbrook.storage.registry.service import RegistryReader

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.listener.moving import Moving

log = logging.getLogger(__name__)

_POLL_S = 0.05  # how often the registry is read for changes
_IDLE_POLL_S = 0.25  # the same while no client is connected
_FLUSH_S = 1.0


class MqttInput(Protocol):
    """The source and destination of messages; every method is called in the gateway's loop."""

    async def start(self) -> None:
        """Open the port, or begin to connect.

        Raises:
            NodeError: the port is taken, or the store cannot be opened.
        """

    def registry_changed(self) -> None:
        """Note that projects, publishers or tokens may have changed.

        Raises:
            StoreError: the registry cannot be read; the call is repeated.
        """

    @property
    def is_idle(self) -> bool:
        """Whether no client is connected, so that a change of the registry is not urgent."""

    def watch(self) -> StoreError | None:
        """Raise or clear health conditions; called 4 to 20 times a second.

        Returns:
            The reason why its store cannot be written; None if the store can be written.
        """

    def measure(self) -> None:
        """Write metrics; called once a second."""

    def publish(self, topic: str, payload: bytes, project_id: int) -> Awaitable[None]:
        """Publish a message of a project's handler with QoS 1; return when it cannot be lost any
        more."""

    def answers(self) -> Answers:
        """Return the answers to questions of other gateway processes."""

    async def refuse_more(self) -> None:
        """Stop taking messages."""

    async def close(self) -> None:
        """Send the last acknowledgements and disconnect."""


class MqttGateway(GatewayActor):
    """Serves the MQTT port, or the connection to the external broker.

    A message is acknowledged when its event was handled or can never be handled. When the node
    cannot take the event now (overload, a full disk), the message stays unacknowledged and is
    retried.
    """

    _input: MqttInput
    _hosts: OtherHosts | None = None  # in a cluster

    async def open(self) -> None:
        """Open the registry and start to receive messages."""
        settings = self.settings
        token_key = node_secrets.load_or_create_key(settings.data / "secrets", "token.key")
        self._reader = RegistryReader(settings.data / "registry")
        if self.host:
            self._reader.lease = Lease(self.run_dir)
        self._refused_events = Refusals(settings.data, self.part, "mqtt")
        events = EventService(
            self._reader,
            SocketRegistryClient(self.run_dir / "registry"),
            token_key,
            self.projects,
            __version__,
            settings.body_limit_bytes,
            self._refused_events,
            BY_MQTT,
            self.host,
        )
        api = ApiCaller(
            self._submit_api_result,
            settings.api_host_list,
            self.run_dir,
            settings.chains,
            settings.prover_url,
            self._account_of,
        )
        moving: Moving | None = None
        # Imported only here: a node uses one of the two, and each one imports its own libraries.
        if settings.mqtt_broker is None:
            from fieldbrook.gateway.mqtt.listener.server import MqttServer

            cluster = ClusterHosts(self.run_dir)
            if cluster.is_member:
                self._hosts = OtherHosts(self.run_dir, cluster)
            server = MqttServer(settings, self.run_dir, self._reader, events, hosts=self._hosts)
            self._input, moving = server, server.moving
        else:
            from fieldbrook.gateway.mqtt.external import ExternalBroker

            self._input = ExternalBroker(settings, self._reader, events, self.health, self.loop)
        publish: Publish = self._input.publish
        if self._hosts is not None:
            publish = partial(self._hosts.publish_on_all, publish)
        self._outbox = OutboxConsumer(deliveries(publish, api))
        await self._input.start()
        if moving is not None:
            self._from_hosts = await serve_hosts(self.run_dir, self._input.publish, moving.answer)
        self._events = events
        old_messages = drain(settings.data, self._deliver_old, self.health)
        self._old_broker = essential(self.loop.create_task(old_messages))
        self._registry_watch = essential(self.loop.create_task(self._watch_registry()))
        answers = {PUBLISHERS: answer_publishers, **self._input.answers()}
        self._peers = await serve_peers(self.run_dir, self.part, answers)

    def _account_of(self, project_id: int) -> int:
        """The account that a project belongs to; 0 when the project was removed."""
        project = self._reader.project(project_id)
        return 0 if project is None else project.account_id

    def measure(self) -> None:
        """See `GatewayActor`."""
        super().measure()
        self._input.measure()

    def receive(self, message: object, sender: Address) -> None:
        """See `GatewayActor`; this gateway also delivers the outboxes of handlers."""
        match message:
            case m.DeliverOutbox(project_id=project_id, path=path):
                self._in_loop(lambda: self._outbox.consume(project_id, path))
            case _:
                super().receive(message, sender)

    async def _deliver_old(self, topic: str, payload: bytes, name: str) -> bool:
        """Handle a message of an earlier version's broker; see `old_broker.drain.Deliver`."""
        answered: asyncio.Future[EventReply] = self.loop.create_future()

        def answer(reply: EventReply) -> None:
            if not answered.done():  # the wait is cancelled when the gateway stops
                answered.set_result(reply)

        metrics.add(metrics.EVENTS_RECEIVED)
        event_topic = read_topic(topic)
        error: NodeError = MalformedMessageError(desc=WRONG_TOPIC)
        if event_topic is not None:
            delivery = name, DELIVERY | REDELIVERY
            try:
                submit_event(
                    self._events, event_topic, payload, answer, resend=True, delivery=delivery
                )
            except MalformedMessageError as malformed:
                error = malformed
            else:
                reply = await answered
                if reply.error is not None:
                    log.warning("the old message on %s failed: %s", masked(topic), reply.error)
                return not isinstance(reply.error, TEMPORARY)
        channel = topic.partition("/")[0]
        self._events.refuser.refuse(error, name, channel, body=payload)
        log.warning("the old message on %s was refused: %s", masked(topic), error)
        return True

    def _submit_api_result(self, project_id: int, event: WireEvent, settle: Settle) -> None:
        metrics.add(metrics.EVENTS_RECEIVED)
        self.projects[project_id].submit(event, settle, resend=True)

    def registry_reader(self) -> RegistryReader:
        """See `GatewayActor`."""
        return self._reader

    async def refuse_more(self) -> None:
        """See `GatewayActor`."""
        self._registry_watch.cancel()
        self._old_broker.cancel()
        await self._input.refuse_more()

    async def close(self) -> None:
        """Send the last acknowledgements and disconnect."""
        self._outbox.stop()
        if self._hosts is not None:
            self._hosts.close()
            self._from_hosts.close()
        with contextlib.suppress(asyncio.CancelledError):
            await self._old_broker
        await self._input.close()
        self._refused_events.close()

    async def _watch_registry(self) -> None:
        known = self._reader.version()
        flushed_at = 0.0
        while True:
            failure, what = self._input.watch(), "the MQTT sessions"
            try:
                version = self._reader.version()
                if version != known:
                    self._input.registry_changed()
                    known = version
            except StoreError as error:  # keep the topics until the registry is readable
                failure, what = error, "the registry"
            if failure is None:
                self.health.clear(*STATES)
            else:
                self.health.raise_(store_condition(failure), f"{what}: {failure}")
            now = time.monotonic()
            if now - flushed_at >= _FLUSH_S:
                flushed_at = now
                self._refused_events.flush()
            await asyncio.sleep(_IDLE_POLL_S if self._input.is_idle else _POLL_S)
