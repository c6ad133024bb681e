"""Messages that no connected client sends: messages of handlers and administrators, and last
wills."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING

from fieldbrook.core import clock
from fieldbrook.core.errors import NodeError, StoreError
from fieldbrook.gateway.delivery.outbox import MessageRefusedError
from fieldbrook.gateway.events.handling import EventService, Login
from fieldbrook.gateway.events.refusals import TEMPORARY
from fieldbrook.gateway.mqtt.event_topics import EventTopic, submit_event
from fieldbrook.gateway.mqtt.protocol.errors import ProtocolError
from fieldbrook.gateway.mqtt.sessions.forwarded import unpack_properties
from fieldbrook.gateway.mqtt.sessions.limits import WILLS_WAITING, check_topic
from fieldbrook.gateway.mqtt.sessions.session import Message, Session, WillRecord
from fieldbrook.gateway.replies import EventReply
from fieldbrook.observability import metrics
from fieldbrook.observability.logs import RateLimitedLog

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.listener.server import MqttServer

log = logging.getLogger(__name__)

_RETRY_S = 1.0
_LOG_INTERVAL_S = 0.1


class OwnMessages:
    """Publishes them."""

    def __init__(self, server: MqttServer, events: EventService) -> None:
        self._server = server
        self._events = events
        self._wills: set[asyncio.Task[None]] = set()
        self._dropped = RateLimitedLog(log, _LOG_INTERVAL_S)
        self._waiting = server.limits.shared(WILLS_WAITING)

    async def publish(self, topic: str, payload: bytes, project_id: int) -> None:
        """See `gateway.MqttInput`.

        Raises:
            NodeError: the message cannot be stored now.
            MessageRefusedError: no client can subscribe to this topic, or the topic belongs to
                another account.
        """
        if self._server.publishing.event_topic(topic.encode()) is not None:
            raise MessageRefusedError("a project takes events on this topic")
        try:
            check_topic(topic)
        except ProtocolError as error:
            raise MessageRefusedError(error.text) from None
        # The handler's call was checked, too, but the topic may belong to another account by now.
        why_not = self._server.access.why_no_handler(project_id, topic)
        if why_not is not None:
            raise MessageRefusedError(why_not)
        await self.distribute(Message(topic, payload, 1, project_id=project_id))

    async def distribute(self, message: Message) -> int:
        """Deliver a message to subscribers; when it is stored, return how many sessions get it.

        Raises:
            NodeError: the message cannot be stored, or cannot be retained.
        """
        done: asyncio.Future[None] = self._server.loop.create_future()

        def stored(error: NodeError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        found = 0

        def publish() -> None:
            nonlocal found
            try:
                found = self._server.router.publish(message, stored)
            except Exception as error:
                done.set_exception(error)
                raise

        holder = message.holder or f"project {message.project_id}"
        self._server.slices.run_soon(holder, publish)
        await done
        return found

    async def _submit(
        self, topic: EventTopic, payload: bytes, login: Login | None = None
    ) -> EventReply | None:
        """Submit an event of the node itself, until it is handled or permanently refused."""
        while True:
            answered: asyncio.Future[EventReply] = self._server.loop.create_future()
            try:
                submit_event(
                    self._events, topic, payload, answered.set_result, resend=True, login=login
                )
            except NodeError as error:
                self._server.publishing.log_refusal(topic.channel, error)
                return None
            reply = await answered
            if not isinstance(reply.error, TEMPORARY):
                if reply.error is not None:
                    self._server.publishing.log_refusal(topic.channel, reply.error)
                return reply
            await asyncio.sleep(_RETRY_S)

    def publish_will(self, session: Session, will: WillRecord) -> None:
        """Publish a will, when the time slices of its login or address permit it."""
        holder = session.holder
        if not self._waiting.has(holder):
            metrics.add(metrics.MQTT_UNDELIVERED)
            return
        self._waiting.add(holder)
        self._server.slices.run_soon(holder, partial(self._begin_will, session, will))

    def _begin_will(self, session: Session, will: WillRecord) -> None:
        try:
            sending = self._sending(session, will)
        except StoreError as error:
            self._dropped.warning("the will of a client is dropped: %s", error)
            sending = None
        holder = session.holder
        if sending is None:
            self._waiting.add(holder, -1)
            return
        task = self._server.loop.create_task(sending)
        self._wills.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._wills.discard(task)
            self._waiting.add(holder, -1)

        task.add_done_callback(ended)

    def _sending(self, session: Session, will: WillRecord) -> Coroutine[None, None, None] | None:
        """Return the coroutine that publishes a will; None if its client may not publish it.

        Raises:
            StoreError: the registry cannot be read.
        """
        server = self._server
        principal = server.access.renewed(session.principal)
        if principal is None:
            why = "the will of a client is dropped: its login is not valid any more"
            self._dropped.warning(why)
            return None
        topic = server.publishing.event_topic(will.topic.encode())
        if topic is not None:
            return self._send_event(topic, will, server.access.login_for_events(principal))
        if not server.access.may_publish(principal, will.topic):
            self._dropped.warning("the will of a client is dropped: its topic is forbidden")
            return None
        expires = clock.now_ms() + 1_000 * will.expiry_s if will.expiry_s else 0
        message = Message(
            will.topic,
            will.payload,
            will.qos,
            will.retain,
            unpack_properties(will.properties),
            expires,
            holder=session.holder,
        )
        return self._send_message(message)

    async def _send_event(self, topic: EventTopic, will: WillRecord, login: Login | None) -> None:
        await self._submit(topic, will.payload, login)

    async def _send_message(self, message: Message) -> None:
        try:
            await self.distribute(message)
        except NodeError as error:
            self._dropped.warning("the will of a client is dropped: %s", error)

    def cancel_wills(self) -> None:
        """Stop publishing last wills; sessions keep wills that were not published."""
        for task in self._wills:
            task.cancel()
