"""The MQTT gateway: turns messages on a project's topic into events.

A message is acknowledged to the broker after the project has committed the event.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from fieldbrook import __version__
from fieldbrook.actors import messages as m
from fieldbrook.actors.runtime import Address
from fieldbrook.actors.wire import BY_MQTT, DELIVERY, REDELIVERY, WireEvent
from fieldbrook.core.errors import (
    MalformedMessageError,
    NodeError,
    ProjectNotFoundError,
    StoreError,
)
from fieldbrook.gateway.auth import strip_scheme
from fieldbrook.gateway.base import GatewayActor
from fieldbrook.gateway.channel import aliases, project_name
from fieldbrook.gateway.delivery.api_calls import ApiCaller
from fieldbrook.gateway.delivery.outbox import OutboxConsumer, deliveries
from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.events.message import message_token
from fieldbrook.gateway.events.protobuf import decode_event
from fieldbrook.gateway.events.refusals import TEMPORARY, Refusals
from fieldbrook.gateway.events.request import NO_NAME, DeliveryName, Meta
from fieldbrook.gateway.links.pending_event import Settle
from fieldbrook.gateway.metrics.publisher_activity import PUBLISHERS, answer_publishers
from fieldbrook.gateway.mqtt.backlog import Backlog, Pending
from fieldbrook.gateway.mqtt.broker_bounds import BoundsWatch
from fieldbrook.gateway.mqtt.broker_watch import BrokerWatch
from fieldbrook.gateway.mqtt.old_broker.drain import drain
from fieldbrook.gateway.mqtt.sources import (
    Delivery,
    MonitoredSource,
    Source,
    make_publisher,
    make_source,
    masked,
)
from fieldbrook.gateway.peers import serve_peers
from fieldbrook.gateway.registry_client import SocketRegistryClient
from fieldbrook.gateway.replies import EventReply
from fieldbrook.observability import metrics
from fieldbrook.observability.health import NO_BROKER
from fieldbrook.security import node_secrets
from fieldbrook.storage.lmdb.condition import STATES, store_condition
from fieldbrook.storage.registry.service import RegistryReader

if TYPE_CHECKING:
    from fieldbrook.gateway.delivery.mqtt_publisher import Publisher

log = logging.getLogger(__name__)

_REGISTRY_POLL_S = 0.05
_RETRY_S = 1.0
_NO_BROKER_S = 2.0  # without a connection before the health condition is raised
_REFUSALS_LOGGED_PER_S = 10
_PUBLISHED_TOPICS_LIMIT = 10_000  # topics of one level on which handlers have published
_NAME_PREFIX = "mqtt-"
_WRONG_TOPIC = "the topic must be PROJECT or PROJECT/push/TOKEN/TYPE"

# Keys that both brokers accept as the rest of a topic; "push/" would make it an ingress topic.
_ACK_KEY = re.compile(r"(?!push/)[^\x00-\x20\x7f+#*>]{1,256}")


class Ingress(NamedTuple):
    """A parsed ingress topic: the channel, and the meta data where the topic carries it."""

    channel: str
    meta: Meta | None


def read_topic(topic: str) -> Ingress | None:
    """Parse an ingress topic; None when the topic has another form.

    `<channel>`, `<channel>/push/<token>/<type>` or
    `<channel>/push/<token>/<type>/ts=<ms>&id=<event id>` (interface document, 3.5).
    """
    channel, *levels = topic.split("/")
    if not levels:
        return Ingress(channel, None)
    if len(levels) not in (3, 4) or levels[0] != "push":
        return None
    pairs = dict(pair.partition("=")[::2] for pair in levels[3].split("&")) if levels[3:] else {}
    token = strip_scheme(levels[1])
    return Ingress(channel, Meta(levels[2], pairs.get("id", ""), pairs.get("ts", ""), token))


def _named_topics(filters: str) -> frozenset[str]:
    """The topics of one level in a list of filters that are separated by commas."""
    named = (part.strip().removesuffix("/#") for part in filters.split(","))
    return frozenset(name for name in named if name and "/" not in name)


def publisher_of(delivery: Delivery) -> str:
    """The token that identifies the publisher of a message; "" where there is none.

    The token keeps a message without it out of the queue of a publisher.
    """
    ingress = read_topic(delivery.topic)
    if ingress is None:
        return ""
    if ingress.meta is not None:
        return ingress.meta.token
    if not delivery.payload.startswith(b"{"):
        with contextlib.suppress(MalformedMessageError):
            return decode_event(delivery.payload)[0].token
    return strip_scheme(message_token(delivery.payload))


def ack_topic(publisher_key: str) -> str | None:
    """The topic of a publisher's replies; None when its key cannot be part of a topic."""
    return f"ack/{publisher_key}" if _ACK_KEY.fullmatch(publisher_key) else None


class MqttGateway(GatewayActor):
    """Owns the connection to the broker.

    A message is acknowledged when its event was handled or can never be handled. When the node
    cannot take the event now (overload, a full disk), the message stays unacknowledged and is
    retried.
    """

    _source: Source

    async def open(self) -> None:
        """Open the registry and start the source."""
        settings = self.settings
        token_key = node_secrets.load_or_create_key(settings.data / "secrets", "token.key")
        self._reader = RegistryReader(settings.data / "registry")
        self._refused_events = Refusals(settings.data, self.part, "mqtt")
        self._events = EventService(
            self._reader,
            SocketRegistryClient(self.run_dir / "registry"),
            token_key,
            self.projects,
            __version__,
            settings.body_limit_bytes,
            self._refused_events,
            BY_MQTT,
        )
        self._refusals_this_second = 0
        self._project_names: frozenset[str] = frozenset()
        self._published_topics: dict[str, None] = {}
        self._warned_projects: set[str] = set()
        self._device_topics = _named_topics(settings.mqtt_device_topics)
        self._closing = False
        self._publisher: Publisher | None = None
        api = ApiCaller(
            self._submit_api_result,
            settings.api_host_list,
            self.run_dir,
            settings.chains,
            settings.prover_url,
        )
        self._outbox = OutboxConsumer(deliveries(self._publish, api))
        self._backlog = Backlog(self._process, publisher_of, self.loop.call_later, self.loop.time)
        self._source = make_source(settings)
        self._source.set_topics(self._read_channels())
        await self._source.start(self._on_delivery)
        self._broker_watch: asyncio.Task[None] | None = None
        self._bounds_watch: asyncio.Task[None] | None = None
        self._old_broker: asyncio.Task[None] | None = None
        if settings.mqtt_broker is not None:  # the embedded broker uses the same store
            old_messages = drain(settings.data, self._deliver_old, self.health)
            self._old_broker = self.loop.create_task(old_messages)
        if isinstance(self._source, MonitoredSource):
            self._source.deliver_misaddressed(self._is_misaddressed)
            watch = BrokerWatch(settings.data, self._source.probe, self.health, self.loop.time)
            self._broker_watch = self.loop.create_task(watch.run())
            bounds_watch = BoundsWatch(self._source.read_usage, self.health)
            self._bounds_watch = self.loop.create_task(bounds_watch.run())
        self._registry_watch = self.loop.create_task(self._watch_registry())
        answers = {PUBLISHERS: answer_publishers}
        self._peers = await serve_peers(self.run_dir, self.part, answers)

    def measure(self) -> None:
        """See `GatewayActor`."""
        super().measure()
        self._backlog.measure()
        metrics.put(metrics.BROKER_CONNECTED, float(self._source.connected))

    def receive(self, message: object, sender: Address) -> None:
        """See `GatewayActor`; this gateway also delivers the outboxes of handlers."""
        match message:
            case m.DeliverOutbox(project_id=project_id, path=path):
                self._in_loop(lambda: self._outbox.consume(project_id, path))
            case _:
                super().receive(message, sender)

    def _publish(self, topic: str, payload: bytes) -> Awaitable[None]:
        if self._publisher is None:
            self._publisher = make_publisher(self.settings)
        if "/" not in topic:
            self._remember_published_topic(topic)
        return self._publisher.publish(topic, payload)

    def _remember_published_topic(self, topic: str) -> None:
        self._published_topics.pop(topic, None)
        self._published_topics[topic] = None
        if len(self._published_topics) > _PUBLISHED_TOPICS_LIMIT:
            del self._published_topics[next(iter(self._published_topics))]

    def _is_misaddressed(self, topic: str) -> bool:
        """Whether a message for no known project was meant to be an event.

        Such a message is recorded as refused, so that its sender finds the reason. Messages that
        handlers publish and topics of `mqtt_device_topics` arrive here too and are no events.
        """
        channel, slash, rest = topic.partition("/")
        if slash:
            return rest.startswith("push/")
        return not (
            channel.startswith("$")
            or channel in self._published_topics
            or channel in self._device_topics
        )

    def _submit_api_result(self, project_id: int, event: WireEvent, settle: Settle) -> None:
        metrics.add(metrics.EVENTS_RECEIVED)
        self.projects[project_id].submit(event, settle, resend=True)

    def registry_reader(self) -> RegistryReader:
        """See `GatewayActor`."""
        return self._reader

    async def refuse_more(self) -> None:
        """Take no more messages; the broker keeps them and delivers them again."""
        self._closing = self._backlog.closed = True
        self._registry_watch.cancel()
        for watch in (self._broker_watch, self._bounds_watch, self._old_broker):
            if watch is not None:
                watch.cancel()

    async def close(self) -> None:
        """Send the last acknowledgements and disconnect from the broker."""
        self._outbox.stop()
        if self._old_broker is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._old_broker
        if self._publisher is not None:
            await asyncio.to_thread(self._publisher.close)
        await self._source.stop()
        self._refused_events.close()

    def _broker_text(self) -> str:
        return self.settings.mqtt_broker or f"the embedded one, port {self.settings.mqtt_port}"

    def _read_channels(self) -> frozenset[str]:
        projects = self._reader.projects()
        for project in projects:
            if project.name in self._device_topics and project.name not in self._warned_projects:
                self._warned_projects.add(project.name)
                log.warning(
                    "mqtt_device_topics lets every device read the events of the project %s and "
                    "the tokens in them: give one of the two another name",
                    project.name,
                )
        self._project_names = frozenset(p.name for p in projects)
        return frozenset(name for p in projects for name in aliases(p.name, p.account_id))

    async def _watch_registry(self) -> None:
        known = -1
        ticks = 0
        lost_at = self.loop.time()
        while True:
            now = self.loop.time()
            if self._source.connected:
                lost_at = now
                self.health.clear(NO_BROKER)
            elif now - lost_at > _NO_BROKER_S:
                self.health.raise_(NO_BROKER, self._broker_text())
            try:
                version = self._reader.version()
                if version != known:
                    self._source.set_topics(self._read_channels())
                    known = version
                self.health.clear(*STATES)
            except StoreError as error:  # keep the topics until the registry is readable
                self.health.raise_(store_condition(error), f"the registry: {error}")
                await asyncio.sleep(_RETRY_S)
            ticks += 1
            if ticks % int(1 / _REGISTRY_POLL_S) == 0:
                self._log_hidden_refusals()
                self._refused_events.flush()
            await asyncio.sleep(_REGISTRY_POLL_S)

    def _on_delivery(self, delivery: Delivery) -> None:
        if not self._closing:
            metrics.here.row[metrics.EVENTS_RECEIVED] += 1
            channel = delivery.topic.partition("/")[0]
            self._backlog.receive(project_name(channel), delivery)

    def _process(self, pending: Pending) -> None:
        """Submit a message of the broker as an event."""
        delivery = pending.delivery

        def conclude(is_done: bool) -> None:
            if is_done:
                delivery.ack()
                self._backlog.complete(pending)
            else:
                self._backlog.defer(pending)

        name = _delivery_name(delivery)
        self._submit(delivery.topic, delivery.payload, name, conclude)

    async def _deliver_old(self, topic: str, payload: bytes, name: str) -> bool:
        """Handle a message of an earlier version's broker; see `old_broker.drain.Deliver`."""
        concluded: asyncio.Future[bool] = self.loop.create_future()

        def conclude(is_done: bool) -> None:
            if not concluded.done():  # the wait is cancelled when the gateway stops
                concluded.set_result(is_done)

        metrics.add(metrics.EVENTS_RECEIVED)
        self._submit(topic, payload, (name, DELIVERY | REDELIVERY), conclude)
        return await concluded

    def _submit(
        self, topic: str, payload: bytes, name: DeliveryName, conclude: Callable[[bool], None]
    ) -> None:
        """Parse a message and submit it as an event.

        `conclude` is called with True when the message is done with, because it was handled or
        refused, and with False when the node cannot take it now.
        """
        ingress = read_topic(topic)
        if ingress is None:
            self._refuse_malformed(topic, payload, name, _WRONG_TOPIC)
            conclude(True)
            return
        channel, meta = ingress
        # A protobuf message begins with the tag of its first field. JSON may begin with the same
        # byte, a line feed, but the rest is no valid protobuf then.
        if meta is None and not payload.startswith(b"{"):
            try:
                meta, payload = decode_event(payload)
            except MalformedMessageError as error:
                if not payload.lstrip().startswith(b"{"):
                    reason = f"neither a JSON message nor {error}"
                    self._refuse_malformed(topic, payload, name, reason)
                    conclude(True)
                    return

        def answered(reply: EventReply) -> None:
            conclude(self._on_reply(topic, reply))

        if meta is None:
            self._events.submit(channel, payload, answered, resend=True, delivery=name)
        else:
            self._events.raw.submit(channel, payload, answered, meta, resend=True, delivery=name)

    def _on_reply(self, topic: str, reply: EventReply) -> bool:
        """Publish the acknowledgement of an event; False when it is to be submitted again."""
        row = metrics.here.row
        if isinstance(reply.error, TEMPORARY):
            row[metrics.EVENT_RETRIES] += 1
            return False
        if reply.error is not None:
            self._log_refusal(topic, reply.body.decode("utf-8", "replace").strip())
        if reply.publisher_key:
            acknowledgement = ack_topic(reply.publisher_key)
            if acknowledgement is not None:
                row[metrics.MQTT_REPLIES] += 1
                self._source.publish(acknowledgement, reply.body)
        row[metrics.MQTT_ACKNOWLEDGED] += 1
        return True

    def _refuse_malformed(
        self, topic: str, payload: bytes, name: DeliveryName, reason: str
    ) -> None:
        """Refuse a message that is no event in any form.

        The refusal is recorded under an id by which it can be found.
        """
        channel = topic.partition("/")[0]
        error: NodeError = MalformedMessageError(desc=reason)
        if project_name(channel) not in self._project_names:
            # Any client can invent names, so the refusals of all unknown projects count as one.
            error = ProjectNotFoundError(project=channel)
        event_id = name[0].removeprefix(_NAME_PREFIX)
        self._events.refuser.refuse(error, event_id, channel, body=payload)
        self._log_refusal(topic, reason)
        metrics.add(metrics.MQTT_ACKNOWLEDGED)

    def _log_refusal(self, topic: str, reason: str) -> None:
        """Log a refused message, because MQTT has no error reply; at most 10 lines per second."""
        self._refusals_this_second += 1
        if self._refusals_this_second <= _REFUSALS_LOGGED_PER_S:
            log.warning("the message on %s was refused: %s", masked(topic), reason[:512])

    def _log_hidden_refusals(self) -> None:
        if self._refusals_this_second > _REFUSALS_LOGGED_PER_S:
            hidden = self._refusals_this_second - _REFUSALS_LOGGED_PER_S
            log.warning("%d more messages were refused in the last second", hidden)
        self._refusals_this_second = 0


def _delivery_name(delivery: Delivery) -> DeliveryName:
    """The name of a delivery, by which a redelivered QoS 1 message is recognised."""
    if not delivery.sequence:
        return NO_NAME
    kind = DELIVERY | REDELIVERY if delivery.may_repeat else DELIVERY
    return _NAME_PREFIX + delivery.sequence, kind
