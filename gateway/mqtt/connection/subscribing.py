"""Handles SUBSCRIBE and UNSUBSCRIBE; the answer is sent when the session is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from fieldbrook.core.errors import NodeError
from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.errors import ProtocolError
from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
)
from fieldbrook.gateway.mqtt.protocol.reason_codes import FAILURE, ReasonCode
from fieldbrook.gateway.mqtt.protocol.topics import check_filter, parse_shared
from fieldbrook.gateway.mqtt.sessions.limits import (
    CLIENT_LEVELS,
    FILTERS_BYTES,
    TOPIC_BYTES,
    TOPIC_LEVELS,
)
from fieldbrook.gateway.mqtt.sessions.routing import levels_of
from fieldbrook.gateway.mqtt.sessions.session import Session, Subscribed

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.connection.connection import Connection
    from fieldbrook.gateway.mqtt.listener.server import MqttServer


_END = object()


class Subscribing:
    """Subscribes clients, and ends subscriptions."""

    def __init__(self, server: MqttServer) -> None:
        self._server = server

    def subscribe(self, connection: Connection, session: Session, packet: Subscribe) -> None:
        """Subscribe a client, and answer when the session is stored."""
        identifier = next(iter(packet.properties.subscription_identifiers), 0)
        codes: list[int] = []
        new: dict[str, tuple[Subscribed, Subscription, bool]] = {}
        for number, wanted in enumerate(packet.subscriptions):
            code: int = ReasonCode.QUOTA_EXCEEDED
            if number < self._server.limits.subscriptions:
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
            existed = new[wanted.filter][2] if wanted.filter in new else None
            if existed is None:
                existed = wanted.filter in session.subscriptions
            new[wanted.filter] = subscribed, wanted, existed
            self._server.router.subscribe(session, subscribed)

        def saved(error: NodeError | None) -> None:
            if session.wire is not connection:
                return
            if error is not None:
                for topic_filter in new:
                    self._server.router.unsubscribe(session, topic_filter)
                connection.end(ReasonCode.QUOTA_EXCEEDED, "the subscription cannot be stored")
                return
            connection.send(encode(connection.version, SubAck(packet.packet_id, tuple(codes))))
            wants = [
                subscribed
                for subscribed, wanted, existed in new.values()
                if wanted.retain_handling == 0 or (wanted.retain_handling == 1 and not existed)
                if parse_shared(subscribed.topic_filter) is None
            ]
            if wants:
                sending = self._retained_for(connection, session, wants)
                self._server.slices.run_soon(session.holder, partial(self._send_some, sending))

        connection.save(session, saved)

    def _send_some(self, sending: Iterator[None]) -> None:
        """Send retained messages until the slice is over, the rest in later turns of the loop."""
        slices = self._server.slices
        for _ in sending:
            if slices.is_used_up:
                slices.continue_later(partial(self._send_some, sending))
                return

    def _retained_for(
        self, connection: Connection, session: Session, wants: Iterable[Subscribed]
    ) -> Iterator[None]:
        """Send the retained messages of new subscriptions, one in each step, while these
        subscriptions exist."""
        for subscribed in wants:
            sending = self._server.router.send_retained(session, subscribed)
            is_more = True
            while is_more and session.wire is connection:
                if session.subscriptions.get(subscribed.topic_filter) is not subscribed:
                    break
                is_more = next(sending, _END) is None
                yield

    def _may_subscribe(self, session: Session, wanted: Subscription) -> int:
        """The reason code for one subscription: the granted QoS, or why it is refused."""
        topic_filter = wanted.filter
        try:
            check_filter(topic_filter, max_levels=TOPIC_LEVELS, max_bytes=TOPIC_BYTES)
        except ProtocolError as error:
            return error.code
        shared = parse_shared(topic_filter)
        plain = topic_filter if shared is None else shared[1]
        if not self._server.access.may_subscribe(session.principal, plain):
            return ReasonCode.NOT_AUTHORIZED
        known, router = session.subscriptions, self._server.router
        if topic_filter not in known:
            size = len(topic_filter.encode())
            used = sum(len(each.encode()) for each in known) + size
            levels = levels_of(topic_filter)
            if (
                len(known) >= self._server.limits.subscriptions
                or used > FILTERS_BYTES
                or sum(map(levels_of, known)) + levels > CLIENT_LEVELS
                or not router.levels.has(session.holder, levels)
                or not self._server.router.queues.has_room(
                    session.holder, len(topic_filter.encode())
                )
            ):
                return ReasonCode.QUOTA_EXCEEDED
        return wanted.qos

    def unsubscribe(self, connection: Connection, session: Session, packet: Unsubscribe) -> None:
        """End subscriptions of a client, and answer when the session is stored."""
        codes = tuple(
            ReasonCode.SUCCESS
            if self._server.router.unsubscribe(session, topic_filter)
            else ReasonCode.NO_SUBSCRIPTION_EXISTED
            for topic_filter in packet.filters
        )

        def saved(error: NodeError | None) -> None:
            if session.wire is connection:
                connection.send(encode(connection.version, UnsubAck(packet.packet_id, codes)))

        connection.save(session, saved)
