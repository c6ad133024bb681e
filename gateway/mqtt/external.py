"""Events from an external broker; the node is a client of this broker.

A message is acknowledged to the broker after the project has committed the event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial

from fieldbrook.actors.wire import DELIVERY, REDELIVERY
from fieldbrook.core.errors import (
    MalformedMessageError,
    NodeError,
    ProjectNotFoundError,
    StoreError,
)
from fieldbrook.core.settings import Settings, split_address
from fieldbrook.gateway.channel import aliases, project_name
from fieldbrook.gateway.delivery.mqtt_publisher import Publisher
from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.events.refusals import TEMPORARY
from fieldbrook.gateway.events.request import NO_NAME, DeliveryName
from fieldbrook.gateway.mqtt.backlog import Backlog, Pending
from fieldbrook.gateway.mqtt.event_topics import (
    WRONG_TOPIC,
    ack_topic,
    masked,
    publisher_of,
    read_topic,
    submit_event,
)
from fieldbrook.gateway.mqtt.paho_source import PahoSource
from fieldbrook.gateway.mqtt.sources import Delivery, Source
from fieldbrook.gateway.peers import Answers
from fieldbrook.gateway.replies import EventReply
from fieldbrook.observability import metrics
from fieldbrook.observability.health import NO_BROKER, ProcessHealth
from fieldbrook.observability.logs import RateLimitedLog
from fieldbrook.security import node_secrets, tls
from fieldbrook.storage.registry.service import RegistryReader

log = logging.getLogger(__name__)

_NO_BROKER_S = 2.0  # without a connection before the health condition is raised
_LOG_INTERVAL_S = 1.0


class ExternalBroker:
    """The node's connection to an external broker; see `gateway.MqttInput`."""

    def __init__(
        self,
        settings: Settings,
        reader: RegistryReader,
        events: EventService,
        health: ProcessHealth,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._events = events
        self._health = health
        self._loop = loop
        self._closing = False
        self._publisher: Publisher | None = None
        self._project_names: frozenset[str] = frozenset()
        self._backlog = Backlog(self._process, _publisher_of, loop.call_later)
        self._source = _make_source(settings)
        self._lost_at = loop.time()
        self._refused = RateLimitedLog(log, _LOG_INTERVAL_S)

    async def start(self) -> None:
        """See `gateway.MqttInput`."""
        self.registry_changed()
        await self._source.start(self._on_delivery)

    @property
    def is_idle(self) -> bool:
        """See `gateway.MqttInput`; clients of the broker are not known here."""
        return False

    def registry_changed(self) -> None:
        """See `gateway.MqttInput`."""
        projects = self._reader.projects()
        self._project_names = frozenset(project.name for project in projects)
        self._source.set_topics(
            frozenset(name for p in projects for name in aliases(p.name, p.account_id))
        )

    def watch(self) -> StoreError | None:
        """See `gateway.MqttInput`."""
        now = self._loop.time()
        if self._source.connected:
            self._lost_at = now
            self._health.clear(NO_BROKER)
        elif now - self._lost_at > _NO_BROKER_S:
            self._health.raise_(NO_BROKER, self._settings.mqtt_broker or "")
        return None

    def measure(self) -> None:
        """See `gateway.MqttInput`."""
        self._backlog.measure()
        metrics.put(metrics.BROKER_CONNECTED, float(self._source.connected))

    def publish(self, topic: str, payload: bytes, project_id: int) -> Awaitable[None]:
        """See `gateway.MqttInput`."""
        if self._publisher is None:
            self._publisher = _make_publisher(self._settings)
        return self._publisher.publish(topic, payload)

    def answers(self) -> Answers:
        """See `gateway.MqttInput`."""
        return {}

    async def refuse_more(self) -> None:
        """See `gateway.MqttInput`; the broker keeps the messages and delivers them again."""
        self._closing = self._backlog.closed = True

    async def close(self) -> None:
        """See `gateway.MqttInput`."""
        if self._publisher is not None:
            await asyncio.to_thread(self._publisher.close)
        await self._source.stop()

    def _on_delivery(self, delivery: Delivery) -> None:
        if not self._closing:
            metrics.here.row[metrics.EVENTS_RECEIVED] += 1
            channel = delivery.topic.partition("/")[0]
            self._backlog.receive(project_name(channel), delivery)

    def _process(self, pending: Pending) -> None:
        """Parse a message and submit it as an event."""
        delivery = pending.delivery
        topic = read_topic(delivery.topic)
        if topic is None:
            self._refuse_malformed(pending, MalformedMessageError(desc=WRONG_TOPIC))
            return
        try:
            submit_event(
                self._events,
                topic,
                delivery.payload,
                partial(self._on_reply, pending),
                resend=True,
                delivery=_delivery_name(delivery),
            )
        except MalformedMessageError as error:
            self._refuse_malformed(pending, error)

    def _on_reply(self, pending: Pending, reply: EventReply) -> None:
        delivery = pending.delivery
        row = metrics.here.row
        if isinstance(reply.error, TEMPORARY):
            row[metrics.EVENT_RETRIES] += 1
            self._backlog.defer(pending)
            return
        if reply.error is not None:
            self._log_refusal(delivery, reply.body.decode("utf-8", "replace").strip())
        if reply.publisher_key:
            topic = ack_topic(reply.publisher_key)
            if topic is not None:
                row[metrics.MQTT_REPLIES] += 1
                self._source.publish(topic, reply.body)
        row[metrics.MQTT_ACKNOWLEDGED] += 1
        delivery.ack()
        self._backlog.complete(pending)

    def _refuse_malformed(self, pending: Pending, error: NodeError) -> None:
        """Refuse and acknowledge a message that has no form of an event.

        The refusal is recorded with a new id, by which it can be looked up.
        """
        delivery = pending.delivery
        channel = delivery.topic.partition("/")[0]
        reason = error.text()
        if project_name(channel) not in self._project_names:
            # Any client can invent names, so the refusals of all unknown projects count as one.
            error = ProjectNotFoundError(project=channel)
        self._events.refuser.refuse(error, delivery.sequence, channel, body=delivery.payload)
        self._log_refusal(delivery, reason)
        metrics.add(metrics.MQTT_ACKNOWLEDGED)
        delivery.ack()
        self._backlog.complete(pending)

    def _log_refusal(self, delivery: Delivery, reason: str) -> None:
        """Log a refused message, because its sender gets no answer."""
        self._refused.warning(
            "the message on %s was refused: %s", masked(delivery.topic), reason[:512]
        )


def _publisher_of(delivery: Delivery) -> str:
    return publisher_of(delivery.topic, delivery.payload)


def _delivery_name(delivery: Delivery) -> DeliveryName:
    """The name of a delivery, by which a redelivered QoS 1 message is recognised."""
    if not delivery.sequence:
        return NO_NAME
    kind = DELIVERY | REDELIVERY if delivery.may_repeat else DELIVERY
    return f"mqtt-{delivery.sequence}", kind


def _make_source(settings: Settings) -> Source:
    """Create the source for the external broker of the settings."""
    assert settings.mqtt_broker is not None
    host, port = split_address(settings.mqtt_broker)
    return PahoSource(
        host,
        port,
        client_id=_client_id(settings),
        username=settings.mqtt_username,
        password=settings.mqtt_password,
        context=tls.broker_context(settings),
        payload_limit_bytes=settings.body_limit_bytes,
    )


def _make_publisher(settings: Settings) -> Publisher:
    """Create the connection on which handlers publish, to the same broker.

    Call it in the loop.
    """
    assert settings.mqtt_broker is not None
    host, port = split_address(settings.mqtt_broker)
    return Publisher(
        host,
        port,
        f"{_client_id(settings)}-out",
        settings.mqtt_username,
        settings.mqtt_password,
        tls.broker_context(settings),
    )


def _client_id(settings: Settings) -> str:
    # The key differs for each node: two nodes at one broker must not take over each other's
    # session.
    key = node_secrets.load_or_create_key(settings.data / "secrets", "mqtt-client.key")
    return f"fieldbrook-{key.hex()[:12]}"
