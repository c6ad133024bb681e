"""Messages from clients: events for projects, and messages for other subscribers.

A message of QoS 1 or 2 is acknowledged when its event is committed, or refused for good. If the
node cannot accept the event now (overload, a full disk), the message stays unacknowledged and is
tried again every second, before all later messages of its connection.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from fieldbrook.actors.wire import DELIVERY, REDELIVERY
from fieldbrook.core import clock
from fieldbrook.core.errors import (
    MalformedMessageError,
    NodeError,
    PayloadTooLargeError,
    ProjectNotFoundError,
    StrategyNotFoundError,
    TooManyRequestsError,
)
from fieldbrook.gateway.channel import project_name
from fieldbrook.gateway.events.handling import EventService, Login
from fieldbrook.gateway.events.message import decode_message
from fieldbrook.gateway.events.refusals import TEMPORARY
from fieldbrook.gateway.events.request import NO_NAME, DeliveryName
from fieldbrook.gateway.memory_budget import MemoryBudget, Shared
from fieldbrook.gateway.mqtt.connection.time_slices import TimeSlices
from fieldbrook.gateway.mqtt.event_topics import (
    WRONG_TOPIC,
    EventTopic,
    ack_topic,
    read_topic,
    submit_event,
)
from fieldbrook.gateway.mqtt.protocol.encoding import puback
from fieldbrook.gateway.mqtt.protocol.packets import VERSION_5, PubAck, Publish, PubRec
from fieldbrook.gateway.mqtt.protocol.reason_codes import FAILURE, ReasonCode
from fieldbrook.gateway.mqtt.sessions.access import Access
from fieldbrook.gateway.mqtt.sessions.forwarded import forwarded
from fieldbrook.gateway.mqtt.sessions.limits import USER_PROPERTIES
from fieldbrook.gateway.mqtt.sessions.routing import Router
from fieldbrook.gateway.mqtt.sessions.session import Message, Session
from fieldbrook.gateway.replies import EventReply
from fieldbrook.observability import metrics
from fieldbrook.observability.logs import RateLimitedLog
from fieldbrook.storage.registry.service import RegistryReader

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.connection.connection import Connection

log = logging.getLogger(__name__)

_TOPICS_CACHED = 10_000
_CACHED_TOPIC_BYTES = 512  # enough for a topic with a token and an event id
_LOG_INTERVAL_S = 0.1
_REASON_LIMIT = 256
_DIGEST_BYTES = 8


class Incoming:
    """A message from a client that has no acknowledgement yet.

    `acknowledgement` is the packet that is sent when all earlier messages are acknowledged.
    `connection` is None after the connection has ended; if the client sends the message again on a
    new connection, the attribute is set to that one.
    """

    __slots__ = (
        "acknowledgement",
        "connection",
        "delivery",
        "digest",
        "packet",
        "packet_id",
        "payload",
        "publishing",
        "qos",
        "session",
        "topic",
    )

    def __init__(
        self,
        publishing: Publishing,
        connection: Connection,
        session: Session,
        topic: EventTopic,
        payload: bytes,
        qos: int,
        packet_id: int,
    ) -> None:
        self.publishing = publishing
        self.connection: Connection | None = connection
        self.session = session
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.packet_id = packet_id
        self.acknowledgement: bytes | None = None
        # The id identifies a QoS 1 message that is sent to its project again.
        self.delivery: DeliveryName = ("", DELIVERY) if qos else NO_NAME
        self.digest = b""
        self.packet: Publish | None = None  # of a message that is no event

    def answer(self, reply: EventReply) -> None:
        """Process the answer to the event: acknowledge the message, or keep it for another try."""
        error = reply.error
        if error is None:
            self.settle(ReasonCode.SUCCESS)
            if reply.publisher_key:
                self.publishing.reply(self, reply)
            return
        if isinstance(error, TEMPORARY):
            self.defer()
            return
        self.publishing.log_refusal(self.topic.channel, error)
        code = code_of(error)
        if self.packet is not None and isinstance(error, MalformedMessageError):
            code = ReasonCode.NOT_AUTHORIZED  # not a topic of events, and forbidden to this client
        self.settle(code, error)
        if reply.publisher_key:
            self.publishing.reply(self, reply)

    def defer(self) -> None:
        """Keep the message, which the node cannot accept now; drop it if it has QoS 0."""
        connection = self.connection
        if not self.qos:
            metrics.add(metrics.MQTT_DROPPED)
            self.settle(ReasonCode.SUCCESS)
        elif connection is None:
            self._end()  # the client has no acknowledgement and sends the message again
        else:
            metrics.here.row[metrics.EVENT_RETRIES] += 1
            connection.inbox.defer(self)

    def settle(self, code: ReasonCode, error: NodeError | None = None) -> None:
        """Acknowledge the message with a reason code."""
        qos, session, connection = self.qos, self.session, self.connection
        packet_id = self.packet_id
        is_accepted = code < FAILURE
        if session.handling.get(packet_id) is not self:
            pass  # another message has the packet id now
        elif qos == 1 and self.digest and is_accepted:
            session.remember_handled(packet_id, self.digest)
        elif qos == 2 and (is_accepted or session.version != VERSION_5):
            session.received.add(packet_id)
            session.count_packet_ids()
        self._end()
        if connection is None:
            return
        connection.is_accepted = is_accepted
        if not qos:
            connection.inbox.qos0_settled()
            return
        metrics.here.row[metrics.MQTT_ACKNOWLEDGED] += 1
        if code is ReasonCode.SUCCESS and qos == 1:
            self.acknowledgement = puback(packet_id)
        else:
            kind = PubAck if qos == 1 else PubRec
            if connection.version != VERSION_5:
                code = ReasonCode.SUCCESS  # 3.1.1 has no other answer
            reason = "" if error is None else error.text()[:_REASON_LIMIT]
            self.acknowledgement = connection.encoder.with_reason(kind(packet_id, code), reason)
        connection.inbox.settled()

    def _end(self) -> None:
        self.publishing.budget.release(len(self.payload))
        if self.session.handling.get(self.packet_id) is self:
            del self.session.handling[self.packet_id]


def code_of(error: NodeError) -> ReasonCode:
    """The reason code for a message whose event was refused."""
    if isinstance(error, StrategyNotFoundError):
        return ReasonCode.NO_MATCHING_SUBSCRIBERS
    if isinstance(error, ProjectNotFoundError):
        return ReasonCode.TOPIC_NAME_INVALID
    if isinstance(error, MalformedMessageError):
        return ReasonCode.PAYLOAD_FORMAT_INVALID
    status = error.status
    if isinstance(error, PayloadTooLargeError) or status == HTTPStatus.TOO_MANY_REQUESTS:
        return ReasonCode.QUOTA_EXCEEDED
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
        return ReasonCode.NOT_AUTHORIZED
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    return ReasonCode.UNSPECIFIED_ERROR


class Publishing:
    """Takes the messages of all connections."""

    def __init__(
        self,
        events: EventService,
        reader: RegistryReader,
        access: Access,
        router: Router,
        budget: MemoryBudget,
        save_surely: Callable[[Session, Callable[[], None]], None],
        slices: TimeSlices,
        replies: Shared,
    ) -> None:
        """Create it. `save_surely` is `Sessions.save_surely`; `replies` counts waiting replies."""
        self._events = events
        self._save_surely = save_surely
        self._slices = slices
        self._replies = replies
        self._reader = reader
        self._access = access
        self._router = router
        self.budget = budget
        # Topics of events by their encoded form; a topic is removed with its project.
        self.topics: dict[bytes, EventTopic] = {}
        self._refused = RateLimitedLog(log, _LOG_INTERVAL_S)

    def registry_changed(self) -> None:
        """Clear the cache of event topics, because projects may have been created or removed."""
        self.topics.clear()

    def event_topic(self, encoded: bytes) -> EventTopic | None:
        """Return the parsed topic; None if it is not a topic of events, or its project does not
        exist."""
        found = self.topics.get(encoded)
        if found is None:
            found = self._read_event_topic(encoded.decode("utf-8"))
            if found is not None and len(encoded) <= _CACHED_TOPIC_BYTES:
                if len(self.topics) >= _TOPICS_CACHED:
                    self.topics.clear()
                self.topics[encoded] = found
        return found

    def _read_event_topic(self, topic: str) -> EventTopic | None:
        found = read_topic(topic)
        if found is None or self._reader.project_named(project_name(found.channel)) is None:
            return None
        return found

    def submit(self, incoming: Incoming, login: Login | None) -> None:
        """Submit a message as an event; its method `answer` is called once, now or later."""
        try:
            submit_event(
                self._events,
                incoming.topic,
                incoming.payload,
                incoming.answer,
                resend=incoming.qos > 0,
                delivery=incoming.delivery,
                login=login,
            )
        except MalformedMessageError as error:
            channel = incoming.topic.channel
            if self._reader.project_named(project_name(channel)) is None:
                # Any client can invent names, so refusals of all unknown projects count as one.
                self.refuse(incoming, ProjectNotFoundError(project=channel))
            else:
                self.refuse(incoming, error)

    def submit_again(self, incoming: Incoming, login: Login | None) -> None:
        """Submit a message again that the node could not accept before."""
        if incoming.packet is None:
            self.submit(incoming, login)
        else:
            self.plain(incoming, incoming.packet)

    def refuse(self, incoming: Incoming, error: NodeError) -> None:
        """Refuse a message that is not a valid event; the refusal is recorded with a new id."""
        channel = incoming.topic.channel
        incoming.answer(self._events.refuser.refuse(error, "", channel, body=incoming.payload))

    def name_delivery(self, incoming: Incoming, encoded_topic: bytes, *, repeated: bool) -> bool:
        """Give a name to a message of a kept session, so that the event runs only once.

        Returns:
            False if the message was handled before, and only has to be acknowledged again.
        """
        session, packet_id = incoming.session, incoming.packet_id
        digest = hashlib.blake2b(b"%d" % incoming.qos, digest_size=_DIGEST_BYTES)
        digest.update(encoded_topic + b"\0")
        digest.update(incoming.payload)
        incoming.digest = found = digest.digest()
        if repeated and session.handled.get(packet_id) == found:
            return False
        # The session remembers only the last messages since the start of this process. The project
        # remembers more, by the name. After a release, the packet id belongs to another message,
        # which may otherwise be equal.
        released = session.releases.get(packet_id, 0)
        name = f"{session.event_prefix}-{packet_id:x}.{released:x}-{found.hex()}"
        incoming.delivery = name, DELIVERY | REDELIVERY if repeated else DELIVERY
        return True

    def plain(self, incoming: Incoming, packet: Publish) -> None:
        """Handle a message on a topic that is not for events."""
        session, topic = incoming.session, packet.topic
        incoming.packet = packet
        if not self._access.may_publish(session.principal, topic):
            self._refuse_topic(incoming, topic)
            return
        if len(packet.properties.user_properties) > USER_PROPERTIES:
            what = f"a message may have {USER_PROPERTIES} user properties"
            incoming.settle(ReasonCode.QUOTA_EXCEEDED, TooManyRequestsError(what=what))
            return
        expiry_s = packet.properties.message_expiry_interval
        message = Message(
            topic,
            packet.payload,
            packet.qos,
            packet.retain,
            forwarded(packet.properties),
            0 if expiry_s is None else clock.now_ms() + 1_000 * expiry_s,
            sender=session.key,
            holder=session.holder,
        )

        def done(error: NodeError | None) -> None:
            if error is None:
                code = ReasonCode.SUCCESS if found else ReasonCode.NO_MATCHING_SUBSCRIBERS
                incoming.settle(code)
            elif receipt is not None and incoming.packet_id in session.stored_received:
                # The session may have been stored meanwhile, with this receipt. The receipt must be
                # removed before the client can send the message again, which would otherwise count
                # as a duplicate.
                session.stored_received.discard(incoming.packet_id)
                self._save_surely(session, partial(failed, error))
            else:
                failed(error)

        def failed(error: NodeError) -> None:
            if isinstance(error, TooManyRequestsError) and not message.retain:
                incoming.defer()  # the store is too slow
            else:
                incoming.settle(ReasonCode.QUOTA_EXCEEDED, error)

        receipt = (session, incoming.packet_id) if packet.qos == 2 and session.is_kept else None
        found = 1  # if nothing has to be stored, `done` is called before `publish` returns
        found = self._router.publish(message, done, receipt)

    def _refuse_topic(self, incoming: Incoming, topic: str) -> None:
        """Refuse a message that is no event, on a topic that its client may not use."""
        event_topic = read_topic(topic)
        if event_topic is None:
            self.refuse(incoming, MalformedMessageError(desc=WRONG_TOPIC))
            return
        # It may be meant as an event of a project that does not exist: the refusal has the event's
        # id.
        incoming.packet, incoming.topic = None, event_topic
        if event_topic.meta is None and incoming.payload.startswith(b"{"):
            try:
                decode_message(incoming.payload)
            except MalformedMessageError:  # the error of the topic is more important
                self.refuse(incoming, ProjectNotFoundError(project=event_topic.channel))
                return
        self.submit(incoming, None)

    def reply(self, incoming: Incoming, reply: EventReply) -> None:
        """Send the answer to an event on the topic of its publisher."""
        topic = ack_topic(reply.publisher_key)
        if topic is None:
            return
        metrics.here.row[metrics.MQTT_REPLIES] += 1
        session, connection = incoming.session, incoming.connection
        # Meanwhile another client may have connected with this session.
        is_its = connection is not None and connection is session.wire
        if is_its and reply.publisher_id not in session.senders:
            self._router.readers.add_sender(
                session, reply.publisher_id, reply.project_id, reply.publisher_key
            )
        message = Message(
            topic,
            reply.body,
            1,
            publisher_id=reply.publisher_id,
            project_id=reply.project_id,
        )
        # Thousands of clients may get the reply: the work counts for the sender of the event.
        slices, holder = self._slices, session.holder
        if slices.may_run(holder):
            slices.run(holder, partial(self._router.publish, message))
        elif self._replies.has(holder):
            self._replies.add(holder)
            slices.enqueue(holder, partial(self._reply_in_turn, holder, message))
        else:
            metrics.add(metrics.MQTT_UNDELIVERED)

    def _reply_in_turn(self, holder: str, message: Message) -> None:
        self._replies.add(holder, -1)
        self._slices.run(holder, partial(self._router.publish, message))

    def log_refusal(self, channel: str, error: NodeError) -> None:
        """Log a refused message; at most ten lines a second. They count the messages without a
        line."""
        self._refused.warning(
            "the message on %s was refused: %s", channel[:128], error.text()[:_REASON_LIMIT]
        )
