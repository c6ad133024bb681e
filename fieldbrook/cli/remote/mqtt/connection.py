"""A connection to an MQTT port, for the commands `mqtt pub` and `mqtt sub`.

There is no other thread: each method runs the client's loop until its answer has arrived.
"""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fieldbrook.cli.errors import EXIT_NOT_ALLOWED, ClientError, UnreachableError, WrongUsageError

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessage
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

V3, V5 = "3.1.1", "5"
WEBSOCKET_PATH = "/mqtt"
_LOOP_S = 0.2
_KEEP_ALIVE_S = 60
_NOT_ALLOWED = frozenset({0x86, 0x87, 0x8A, 0x8C})  # login, authorization, banned, method
_PACKET_ID_UNKNOWN = 0x92
_NO_MQTT = "is it an MQTT port, and is --tls right for it?"


@dataclass(frozen=True, kw_only=True)
class Target:
    """The address of a server, and the login to use there.

    `authorities` is a PEM file; "" stands for the authorities of the system.
    """

    host: str
    port: int
    websocket: bool = False
    tls: bool = False
    authorities: str = ""
    certificate: str | None = None
    key: str | None = None
    client_id: str = ""
    username: str | None = None
    password: str | None = None
    version: str = V5
    session_expiry_s: int = 0
    timeout_s: float = 10.0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Reason:
    """The reason of an answer: a reason code, its name, and the node's text."""

    code: int
    name: str
    text: str = ""

    @property
    def is_failure(self) -> bool:
        """Whether the code means that the node refused something."""
        return self.code >= 0x80

    def __str__(self) -> str:
        return f"{self.name} (0x{self.code:02x})" + (f": {self.text}" if self.text else "")


class ReasonError(ClientError):
    """The node refused something, or ended the connection."""

    def __init__(self, what: str, reason: Reason) -> None:
        hint = ""
        if reason.code == _PACKET_ID_UNKNOWN:
            hint = "the node refused it before PUBREL; with --qos 1 it says why"
        super().__init__(f"{what}: {reason}", hint)
        if reason.code in _NOT_ALLOWED:
            self.exit_code = EXIT_NOT_ALLOWED


@dataclass
class _Said:
    """The packets that the node has sent since the connection began."""

    connected: Reason | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    ended: Reason | None = None
    published: dict[int, Reason] = field(default_factory=dict)
    subscribed: dict[int, list[Reason]] = field(default_factory=dict)
    messages: deque[MQTTMessage] = field(default_factory=deque)


class Connection:
    """A connected client; a context manager that disconnects at its end."""

    def __init__(self, target: Target) -> None:
        """Connect, and wait for the answer of the node.

        Raises:
            UnreachableError: nothing answers at the address, or TLS fails.
            ReasonError: the node refuses the client.
        """
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        self._target = target
        self._said = said = _Said()
        self._v5 = target.version == V5
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=target.client_id,
            clean_session=None if self._v5 else not target.session_expiry_s,
            protocol=paho.MQTTv5 if self._v5 else paho.MQTTv311,
            transport="websockets" if target.websocket else "tcp",
            reconnect_on_failure=False,
        )
        self._client = client
        if target.websocket:
            client.ws_set_options(path=WEBSOCKET_PATH)
        if target.tls:
            client.tls_set_context(_tls_context(target))
        if target.username is not None or target.password is not None:
            client.username_pw_set(target.username or "", target.password)

        def on_connect(_: Any, __: Any, flags: Any, code: ReasonCode, more: Any) -> None:
            said.connected = _reason(code, more)
            said.properties = {"sessionPresent": flags.session_present, **properties_of(more)}

        def on_disconnect(_: Any, __: Any, flags: Any, code: ReasonCode, more: Any) -> None:
            if flags.is_disconnect_packet_from_server:
                said.ended = _reason(code, more)
            else:
                said.ended = said.ended or Reason(0x80, "the connection was closed")

        def on_publish(_: Any, __: Any, mid: int, code: ReasonCode, more: Any) -> None:
            said.published[mid] = _reason(code, more)

        def on_subscribe(_: Any, __: Any, mid: int, codes: list[ReasonCode], more: Any) -> None:
            said.subscribed[mid] = [_reason(code, more) for code in codes]

        client.on_connect, client.on_disconnect = on_connect, on_disconnect
        client.on_publish, client.on_subscribe = on_publish, on_subscribe
        client.on_message = lambda _, __, message: said.messages.append(message)
        self._connect()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        if self._said.ended is None:
            self._client.disconnect()
            self._client.loop(_LOOP_S)

    @property
    def properties(self) -> dict[str, Any]:
        """The node's answer to CONNECT: `sessionPresent`, limits, supported features."""
        return self._said.properties

    def publish(
        self, topic: str, payload: bytes, qos: int, *, retain: bool, properties: dict[str, Any]
    ) -> Reason | None:
        """Publish a message and wait until the node has acknowledged it.

        Args:
            properties: properties of MQTT 5, by their names in paho.

        Returns:
            The reason in the node's acknowledgement; None for QoS 0, which has no acknowledgement.

        Raises:
            ReasonError: the node refused the message, or ended the connection.
            WrongUsageError: the topic or a property is not valid.
        """
        from paho.mqtt.packettypes import PacketTypes

        given = self._properties(PacketTypes.PUBLISH, properties)
        try:
            sent = self._client.publish(topic, payload, qos, retain, given)
        except ValueError as error:
            raise WrongUsageError(f"{topic!r}: {error}") from None
        self._wait(lambda: sent.mid in self._said.published, "no acknowledgement of the message")
        reason = self._said.published.pop(sent.mid)
        if reason.is_failure:
            raise ReasonError("the node refused the message", reason)
        return reason if qos else None

    def subscribe(
        self,
        filters: Sequence[str],
        qos: int,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> None:
        """Subscribe to filters.

        Raises:
            ReasonError: the node refused a subscription, or ended the connection.
            WrongUsageError: a filter is not valid.
        """
        from paho.mqtt.subscribeoptions import SubscribeOptions

        options = SubscribeOptions(qos, no_local, retain_as_published, retain_handling)
        topics: Any = [(each, options if self._v5 else qos) for each in filters]
        try:
            _, mid = self._client.subscribe(topics)
        except ValueError as error:
            raise WrongUsageError(f"{', '.join(filters)}: {error}") from None
        assert mid is not None
        self._wait(lambda: mid in self._said.subscribed, "no answer to the subscription")
        for topic_filter, reason in zip(filters, self._said.subscribed[mid], strict=False):
            if reason.is_failure:
                raise ReasonError(f"the node refused the subscription {topic_filter}", reason)

    def messages(self, until: float) -> Iterator[MQTTMessage]:
        """Iterate over messages until a time (`time.monotonic`).

        Raises:
            ReasonError: the node ended the connection.
        """
        while True:
            while self._said.messages:
                yield self._said.messages.popleft()
            if time.monotonic() >= until:
                return
            self._loop()

    # ---------------------------------------------------------------- waiting

    def _connect(self) -> None:
        target = self._target
        from paho.mqtt.packettypes import PacketTypes

        expiry = {"SessionExpiryInterval": target.session_expiry_s}
        given = self._properties(PacketTypes.CONNECT, expiry if target.session_expiry_s else {})
        try:
            self._client.connect_timeout = target.timeout_s
            self._client.connect(
                target.host,
                target.port,
                _KEEP_ALIVE_S,
                clean_start=not target.session_expiry_s if self._v5 else 3,
                properties=given,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            hint = "name the MQTT port with --host and --port; a TLS port needs --tls"
            raise UnreachableError(f"cannot reach {target}: {reason}", hint) from None
        self._wait(lambda: self._said.connected is not None, "no CONNACK", opening=True)
        assert self._said.connected is not None
        if self._said.connected.is_failure:
            raise ReasonError("the node refused the connection", self._said.connected)

    def _wait(self, state: Callable[[], bool], missing: str, *, opening: bool = False) -> None:
        limit = time.monotonic() + self._target.timeout_s
        while not state():
            if time.monotonic() >= limit:
                reason = f"{missing} within {self._target.timeout_s:g} s"
                hint = _NO_MQTT if opening else ""
                raise UnreachableError(f"{self._target}: {reason}", hint)
            self._loop(opening=opening and self._said.connected is None)

    def _loop(self, *, opening: bool = False) -> None:
        if self._said.ended is not None:
            if opening:
                reason = "closed the connection before CONNACK"
                raise UnreachableError(f"{self._target} {reason}", _NO_MQTT)
            raise ReasonError("the node ended the connection", self._said.ended)
        self._client.loop(_LOOP_S)

    def _properties(self, packet: int, values: dict[str, Any]) -> Properties | None:
        if not values:
            return None
        if not self._v5:
            raise WrongUsageError("MQTT 3.1.1 has no properties: leave out --mqtt 3.1.1")
        from paho.mqtt import MQTTException, properties

        make: Any = properties.Properties  # paho has no types for it
        found: Properties = make(packet)
        try:
            for name, value in values.items():
                setattr(found, name, value)
        except MQTTException as error:
            raise WrongUsageError(str(error)) from None
        return found


def properties_of(found: Properties | None) -> dict[str, Any]:
    """Return the properties of a packet by their names in camel case."""
    if found is None:
        return {}
    untyped: Any = found  # as in paho
    values: dict[str, Any] = untyped.json()
    return {name[0].lower() + name[1:]: value for name, value in values.items()}


def _reason(code: ReasonCode, more: Properties | None) -> Reason:
    return Reason(code.value, code.getName(), getattr(more, "ReasonString", ""))


def _tls_context(target: Target) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=target.authorities or None)
        if target.certificate is not None:
            context.load_cert_chain(target.certificate, target.key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ClientError(f"cannot use the certificates: {reason}") from None
    return context
