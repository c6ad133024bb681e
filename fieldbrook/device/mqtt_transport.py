"""Events over MQTT 5 with QoS 1: several in flight at a time, acknowledged when they are
committed."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fieldbrook.device.address import Address, reason_of
from fieldbrook.device.errors import DeviceError
from fieldbrook.device.event import Accepted, Event, Later, Outcome, Refused, failure_in_text
from fieldbrook.device.transport import Sender

if TYPE_CHECKING:
    from paho.mqtt.client import Client

_LOOP_S = 0.1
_KEEP_ALIVE_S = 120
_IDLE_LIMIT_S = _KEEP_ALIVE_S / 2
"""Without events, the client's loop does not run, so an idle connection is opened again."""
_WINDOW = 20  # the same limit as paho's for unacknowledged messages
_PACKET_BYTES = 10  # size of a PUBLISH without topic and body: type, lengths, packet id
_PACKET_LIMIT_BYTES = 256 << 20  # of MQTT itself
_FAILURE = 0x80
_NO_STRATEGY = 0x10


class MqttTransport:
    """Publishes events on the topic of their project; see `Transport`."""

    def __init__(self, address: Address, sender: Sender, timeout_s: float) -> None:
        """Store the parameters; the first `send` connects.

        Raises:
            DeviceError: paho-mqtt is not installed, or this cannot be the name of a project.
        """
        if any(character in sender.project for character in "+#/\0"):
            raise DeviceError(f"{sender.project!r} is not the name of a project")
        try:
            import paho.mqtt.client  # noqa: F401 - checks that it is installed
        except ImportError:
            raise DeviceError("MQTT needs the package paho-mqtt: pip install paho-mqtt") from None
        self._address = address
        self._sender = sender
        self._timeout_s = timeout_s
        self._client: Client | None = None
        self._ended = ""
        self._connected = False
        self._outcomes: dict[int, Outcome] = {}
        self._used_at = 0.0
        self._window = _WINDOW
        self._packet_limit_bytes = _PACKET_LIMIT_BYTES
        self._is_aborted = False

    def send(self, events: Sequence[Event]) -> list[Outcome]:
        """Publish the events and wait for the acknowledgements."""
        if time.monotonic() - self._used_at > _IDLE_LIMIT_S:
            self.close()
        is_reused = self._client is not None
        outcomes = self._send_once(events)
        if is_reused and self._client is None and not self._outcomes and not self._is_aborted:
            # The node has closed the idle connection.
            outcomes = self._send_once(events)
        return outcomes

    def _send_once(self, events: Sequence[Event]) -> list[Outcome]:
        self._outcomes.clear()
        if self._client is None:
            problem = self._connect()
            if problem:
                self.close()
                return [Later(problem)] * len(events)
        client = self._client
        assert client is not None
        packet_ids: list[int] = []
        limit, answered = time.monotonic() + self._timeout_s, 0
        while answered < len(events) and not self._ended and not self._is_aborted:
            while len(packet_ids) < min(len(events), answered + self._window):
                packet_ids.append(self._publish(client, events[len(packet_ids)], len(packet_ids)))
            self._loop(client)
            if len(self._outcomes) > answered:
                answered, limit = len(self._outcomes), time.monotonic() + self._timeout_s
            elif time.monotonic() > limit:
                self._ended = "no acknowledgement"
        self._used_at = time.monotonic()
        missing = Later(f"{self._address}: {self._ended or 'closed'}")
        if self._ended or self._is_aborted:
            self.close()
        outcomes = [self._outcomes.get(packet_id, missing) for packet_id in packet_ids]
        return [*outcomes, *[missing] * (len(events) - len(outcomes))]

    def _publish(self, client: Client, event: Event, number: int) -> int:
        """Publish an event and return its packet id. An event that is too large gets a negative id,
        and its outcome at once, because the node would end the connection at each attempt."""
        topic = self._sender.project
        message = event.message(self._sender.publisher, self._sender.token)
        body = json.dumps(message, separators=(",", ":")).encode()
        size_bytes = len(body) + len(topic.encode()) + _PACKET_BYTES
        if size_bytes <= self._packet_limit_bytes:
            return client.publish(topic, body, 1).mid
        text = f"the packet has {size_bytes} bytes; the limit is {self._packet_limit_bytes}"
        self._outcomes[-1 - number] = Refused(413, "RequestEntityTooLarge", text)
        return -1 - number

    def _loop(self, client: Client) -> None:
        code = client.loop(_LOOP_S)
        if code and not self._ended:
            self._ended = f"the connection ended ({code})"

    def _connect(self) -> str:
        """Connect; return the reason of a failure, "" if it succeeded."""
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        client = paho.Client(
            CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5, reconnect_on_failure=False
        )
        client.connect_timeout = self._timeout_s
        if self._address.tls is not None:
            self._address.tls.sslsocket_class = _TlsSocket
            client.tls_set_context(self._address.tls)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_publish = self._on_publish
        self._client, self._ended, self._connected = client, "", False
        try:
            client.connect(self._address.host, self._address.port, _KEEP_ALIVE_S, clean_start=True)
        except (OSError, ValueError) as error:
            return f"cannot reach {self._address}: {reason_of(error)}"
        _send_at_once(client)
        limit = time.monotonic() + self._timeout_s
        while not self._connected and not self._ended:
            if self._is_aborted:
                return "closed"
            if time.monotonic() > limit:
                return f"{self._address} does not answer as an MQTT server"
            self._loop(client)
        return f"{self._address}: {self._ended}" if self._ended else ""

    def _on_connect(self, _: Any, __: Any, ___: Any, code: Any, more: Any) -> None:
        if code.is_failure:
            self._ended = _words(code, more)
        else:
            self._connected = True
            self._window = min(_WINDOW, getattr(more, "ReceiveMaximum", _WINDOW))
            self._packet_limit_bytes = getattr(more, "MaximumPacketSize", _PACKET_LIMIT_BYTES)

    def _on_disconnect(self, _: Any, __: Any, ___: Any, code: Any, more: Any) -> None:
        self._ended = self._ended or _words(code, more) or "the connection ended"

    def _on_publish(self, _: Any, __: Any, packet_id: int, code: Any, more: Any) -> None:
        text = getattr(more, "ReasonString", "")
        if code.value < _FAILURE and code.value != _NO_STRATEGY:
            self._outcomes[packet_id] = Accepted()
        else:
            # The reason contains the node's error. Without a reason, only the code is known.
            refused = Refused(400, code.getName(), text)
            self._outcomes[packet_id] = failure_in_text(text) or refused

    def abort(self) -> None:
        """Abort a `send` of another thread within a tenth of a second."""
        self._is_aborted = True

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.on_disconnect = None
            client.disconnect()
        self._connected = False


class _TlsSocket(ssl.SSLSocket):
    """A socket that closes itself if the handshake fails; paho would leave it open."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


def _send_at_once(client: Client) -> None:
    """Disable Nagle's algorithm, with which small packets wait for the acknowledgement of earlier
    ones."""
    connection = client.socket()
    if isinstance(connection, socket.socket):  # true for TLS, too
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _words(code: Any, more: Any) -> str:
    text = getattr(more, "ReasonString", "")
    return f"{code.getName()}: {text}" if text else str(code.getName())
