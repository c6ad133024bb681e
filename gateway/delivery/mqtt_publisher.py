"""Publishes handlers' MQTT messages, over a connection separate from the receiving one.

Paho's own thread maintains the connection. Messages without an acknowledgement of the broker are
sent again, in order, after every reconnection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from fieldbrook.gateway.delivery.outbox import MessageRefusedError

log = logging.getLogger(__name__)

_QOS = 1
_IN_FLIGHT = 200
_LONGEST_DELAY_S = 2
_FAILURES_LIMIT = 3  # connections in a row that ended without an acknowledgement


class Publisher:
    """One connection to the broker, opened at once and reopened whenever it is lost.

    A broker with its own size limit closes the connection at a message that is too large, without
    a reason. Paho would send that message again for ever. When `_FAILURES_LIMIT` connections end
    without an acknowledgement, messages are therefore sent one at a time. A message that was alone
    in flight at `_FAILURES_LIMIT` such ends moves to the end of the queue. It is dropped if this
    happens again after another message was acknowledged. If a broker acknowledges no message at
    all, the broker counts as broken, and no message is dropped because of this.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        username: str | None,
        password: str | None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Start to connect; `context` is for TLS."""
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._unsent: list[tuple[str, bytes, asyncio.Future[None]]] = []
        self._is_connected = self._is_suspect = False
        self._failed_connections = 0
        self._acknowledged_count = 0
        self._strikes: dict[int, int] = {}  # message id: acknowledgements at its first move
        self._client = client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id)
        if username is not None:
            client.username_pw_set(username, password)
        if context is not None:
            client.tls_set_context(context)
        client.on_pre_connect = self._before_connecting
        client.max_inflight_messages_set(_IN_FLIGHT)
        client.max_queued_messages_set(0)  # no limit here, because the outbox is bounded
        client.reconnect_delay_set(1, _LONGEST_DELAY_S)
        client.on_publish = self._on_publish
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_socket_open = _without_delay
        client.connect_async(host, port)
        client.loop_start()

    def publish(self, topic: str, payload: bytes) -> Awaitable[None]:
        """Publish with QoS 1; the result is done when the broker has acknowledged the message.

        Raises (when awaited):
            MessageRefusedError: the broker does not accept the message.
        """
        done = self._loop.create_future()
        if self._is_connected and not self._unsent:
            self._send(topic, payload, done)
        else:
            # Paho would send the message even before the broker has accepted the connection, and
            # before the messages that it kept from the previous connection.
            self._unsent.append((topic, payload, done))
        return done

    def _send(self, topic: str, payload: bytes, done: asyncio.Future[None]) -> None:
        # The acknowledgement may arrive before the message id is known here. It is handled in
        # the loop, after this call.
        info = self._client.publish(topic, payload, _QOS)
        self._waiting[info.mid] = done

    def _send_unsent(self) -> None:
        unsent, self._unsent = self._unsent, []
        for topic, payload, done in unsent:
            if done.done():  # the delivery was cancelled
                continue
            try:
                self._send(topic, payload, done)
            except ValueError as error:  # the topic is not valid in MQTT
                done.set_exception(error)

    def close(self) -> None:
        """Disconnect; messages without an acknowledgement stay in their project's outbox."""
        self._client.disconnect()
        self._client.loop_stop()

    # Called in paho's thread.

    def _on_publish(
        self, client: mqtt.Client, userdata: Any, mid: int, code: ReasonCode, _: Properties
    ) -> None:
        self._failed_connections = 0
        self._acknowledged_count += 1
        self._strikes.pop(mid, None)
        self._send_singly(bool(self._strikes))
        self._loop.call_soon_threadsafe(self._published, mid, code)

    def _on_connect(
        self, client: mqtt.Client, userdata: Any, flags: Any, code: ReasonCode, _: Any
    ) -> None:
        if code.is_failure:
            log.error(
                "the broker refuses the connection that publishes handlers' messages: %s", code
            )
        self._is_connected = not code.is_failure
        if self._is_connected:
            self._loop.call_soon_threadsafe(self._send_unsent)

    def _on_disconnect(
        self, client: mqtt.Client, userdata: Any, flags: Any, code: ReasonCode, _: Any
    ) -> None:
        was_connected, self._is_connected = self._is_connected, False
        if not code.is_failure:
            return
        if not self._failed_connections:
            log.warning("no connection to the broker, so handlers' messages wait: %s", code)
        if not was_connected:
            return
        self._failed_connections += 1
        if self._failed_connections >= _FAILURES_LIMIT:
            self._failed_connections = 0
            self._is_suspect = True

    def _before_connecting(self, client: mqtt.Client, userdata: Any) -> None:
        # This is not done when a connection ends, because paho may be iterating over its messages
        # then.
        if self._is_suspect:
            self._is_suspect = False
            if client.max_inflight_messages == 1:
                self._strike_first()
            self._send_singly(True)

    def _send_singly(self, singly: bool) -> None:
        # Paho's public setter refuses changes on an open connection, because of changes from and
        # to 0.
        self._client._max_inflight_messages = 1 if singly else _IN_FLIGHT

    def _strike_first(self) -> None:
        client = self._client
        with client._out_message_mutex:
            if not client._out_messages:
                return
            mid, message = next(iter(client._out_messages.items()))
            before = self._strikes.get(mid)
            if before is None or before == self._acknowledged_count:
                self._strikes.setdefault(mid, self._acknowledged_count)
                client._out_messages.move_to_end(mid)
                return
            del client._out_messages[mid]
            del self._strikes[mid]
        size = len(message.payload)
        log.error(
            "dropped a message of %d bytes to %r, at which the broker closes the connection",
            size,
            message.topic[:128],
        )
        reason = f"the broker does not accept a message of {size} bytes"
        self._loop.call_soon_threadsafe(self._refused, mid, reason)

    # In the loop.

    def _refused(self, mid: int, reason: str) -> None:
        done = self._waiting.pop(mid, None)
        if done is not None and not done.done():
            done.set_exception(MessageRefusedError(reason))

    def _published(self, mid: int, code: ReasonCode) -> None:
        done = self._waiting.pop(mid, None)
        if code.is_failure:
            log.error("the broker refused a handler's message: %s", code)
        if done is not None and not done.done():
            done.set_result(None)


def _without_delay(client: mqtt.Client, userdata: Any, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
