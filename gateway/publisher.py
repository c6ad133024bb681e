"""Publishing MQTT messages of handlers: a client of the broker beside the one that receives.

Paho's own thread keeps the connection; what the broker has not acknowledged is sent again
after every reconnection, in order.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

log = logging.getLogger(__name__)

_QOS = 1
_IN_FLIGHT = 200
_LONGEST_DELAY_S = 2


class Publisher:
    """One connection, opened at once and again whenever it is lost."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        username: str | None,
        password: str | None,
        context: ssl.SSLContext | None = None,
        renewed: Path | None = None,
    ) -> None:
        """`context`: for TLS; the certificate in `renewed`, read again before each connection,
        is trusted as well."""
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._client = client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id)
        if username is not None:
            client.username_pw_set(username, password)
        self._context, self._renewed = context, renewed
        if context is not None:
            client.tls_set_context(context)
        client.on_pre_connect = self._before_connecting
        client.max_inflight_messages_set(_IN_FLIGHT)
        client.max_queued_messages_set(0)  # the outbox is the bound
        client.reconnect_delay_set(1, _LONGEST_DELAY_S)
        client.on_publish = self._on_publish
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_socket_open = _without_delay
        client.connect_async(host, port)
        client.loop_start()

    def publish(self, topic: str, payload: bytes) -> Awaitable[None]:
        """Publish with QoS 1; done when the broker has acknowledged it."""
        done = self._loop.create_future()
        # The answer may come before the number is known here: it is dealt with in the loop,
        # after this call.
        info = self._client.publish(topic, payload, _QOS)
        self._waiting[info.mid] = done
        return done

    def close(self) -> None:
        """Disconnect; messages that were not acknowledged stay their outbox's."""
        self._client.disconnect()
        self._client.loop_stop()

    def _before_connecting(self, client: mqtt.Client, userdata: Any) -> None:
        if self._context is not None and self._renewed is not None:
            try:
                self._context.load_verify_locations(self._renewed)
            except (OSError, ssl.SSLError) as error:
                log.warning("certificate %s: %s", self._renewed, error)

    def _on_publish(
        self, client: mqtt.Client, userdata: Any, mid: int, code: ReasonCode, _: Properties
    ) -> None:
        self._loop.call_soon_threadsafe(self._published, mid, code)

    def _published(self, mid: int, code: ReasonCode) -> None:
        done = self._waiting.pop(mid, None)
        if code.is_failure:
            log.error("the broker refused a message: %s", code)
        if done is not None and not done.done():
            done.set_result(None)

    def _on_connect(
        self, client: mqtt.Client, userdata: Any, flags: Any, code: ReasonCode, _: Any
    ) -> None:
        if code.is_failure:
            log.error("the broker refuses the connection for handlers' messages: %s", code)

    def _on_disconnect(
        self, client: mqtt.Client, userdata: Any, flags: Any, code: ReasonCode, _: Any
    ) -> None:
        if code.is_failure:
            log.warning("handlers' messages wait: no connection to the broker: %s", code)


def _without_delay(client: mqtt.Client, userdata: Any, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
