"""The limits of the MQTT server, for each client and for all clients together."""

from __future__ import annotations

import collections

import msgspec

from fieldbrook.core.settings import Settings
from fieldbrook.gateway.memory_budget import Shared, request_budget
from fieldbrook.gateway.mqtt.protocol.packets import VERSION_5, Connect
from fieldbrook.gateway.mqtt.protocol.topics import check_topic_name

CONNECT_LIMIT_S = 10.0
"""How long a connection may take to send its CONNECT."""
PACKET_LIMIT_S = 30.0
"""How long a packet may stay incomplete."""
UNREAD_LIMIT_S = 60.0
"""How long a client may leave sent packets unread."""
KEEP_ALIVE_SHARE = 1.5
UNWRITTEN_BYTES = 1 << 20
"""Sent bytes that a client has not read; above this limit, QoS 0 messages to it are dropped."""

CONTROL_BYTES = 160 << 10
"""The size of a packet other than PUBLISH: a CONNECT with a long will, user name and password."""
USER_PROPERTIES = 32
"""User properties of a message."""
CLIENT_ID_BYTES = 256
TOPIC_BYTES = 4_096
TOPIC_LEVELS = 64
FILTERS_BYTES = 32 << 10  # of all filters of a client
CLIENT_LEVELS = 1_000  # of all filters of a client; a level takes about 400 bytes
ALL_LEVELS = 1_000_000  # of all filters
WILL_BYTES = 16 << 10
RETAINED_BYTES = 64 << 10
QOS0_IN_PROGRESS = 256
"""QoS 0 messages of a connection in progress; above this limit, reading from it pauses."""
SAVES_IN_PROGRESS = 16
"""Changes of a session that are being stored; above this limit, reading from its connection
pauses."""
HANDLED_KEPT = 128
"""Packet ids of a session that are remembered in memory after their acknowledgement."""
RELEASES_KEPT = 128
"""Packet ids of a session whose number of releases is remembered."""
SENDERS_KEPT = 1_000
"""Publishers whose replies a connection may read; a device gateway sends for many devices."""
REPLIES_WAITING = 10_000
"""Waiting replies to events, of all senders together; see `connection.time_slices`."""
WILLS_WAITING = 10_000
"""Wills that are being published, of all clients together."""
ALIASES = 16
UNRELEASED = 1_024
"""QoS 2 messages that a client has not released; the receive maximum may allow more. A client with
more is disconnected."""
ALL_PACKET_IDS = 1_000_000
"""Packet ids that all sessions remember together; one takes about 75 bytes."""
LEAST_PACKET_IDS = 8
"""Packet ids of each kind that a session may always remember, even at `ALL_PACKET_IDS`."""
ROW_BYTES = 256
"""About the largest overhead of a message in the store beside topic, payload and properties."""
_SEND_MAXIMUM = 1_000  # messages that were sent to a client without an acknowledgement
_PACKET_SLACK = 16 << 10  # for the topic and the properties beside the payload


class Limits(msgspec.Struct, frozen=True):
    """The limits that settings decide."""

    connections: int = 20_000
    connections_per_address: int = 10_000
    connects_per_s: int = 1_000
    share_percent: int = 50
    packet_bytes: int = (1 << 20) + _PACKET_SLACK
    receive_maximum: int = 64
    keep_alive_s: int = 3_600
    sessions: int = 100_000
    session_expiry_s: int = 168 * 3_600
    subscriptions: int = 100
    queued_messages: int = 1_000
    queued_bytes: int = 1 << 20
    retained: int = 1_000
    retained_expiry_s: int = 0
    store_bytes: int = 1 << 30

    @property
    def unreleased(self) -> int:
        """The number of QoS 2 messages that a session may leave unreleased: at least the receive
        maximum, but more for clients that do not count their messages."""
        return max(UNRELEASED, self.receive_maximum)

    def send_maximum(self, packet: Connect) -> int:
        """Return the number of sent messages that a client may leave unacknowledged."""
        if packet.version != VERSION_5:  # MQTT 3.1.1 has no receive maximum
            return min(self.queued_messages, self.receive_maximum, _SEND_MAXIMUM)
        asked = packet.properties.receive_maximum or _SEND_MAXIMUM
        return min(asked, self.queued_messages, _SEND_MAXIMUM)

    def shared(self, limit: int) -> Shared:
        """Return a counter for a limit of all clients, of which each holder may use a share."""
        return Shared(limit, self.share_percent)

    def incomplete(self) -> Shared:
        """The budget for packets that have not arrived as a whole."""
        return request_budget(self.packet_bytes, self.share_percent)

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Take the limits from the settings."""
        return cls(
            connections=settings.mqtt_connections,
            connections_per_address=settings.mqtt_connections_per_address,
            connects_per_s=settings.mqtt_connects_per_s,
            share_percent=settings.mqtt_share_percent,
            packet_bytes=settings.body_limit_bytes + _PACKET_SLACK,
            receive_maximum=settings.mqtt_receive_maximum,
            keep_alive_s=settings.mqtt_keep_alive_s,
            sessions=settings.mqtt_session_limit,
            session_expiry_s=settings.mqtt_session_expiry_s,
            subscriptions=settings.mqtt_subscriptions,
            queued_messages=settings.mqtt_queued_messages,
            queued_bytes=settings.mqtt_queued_bytes,
            retained=settings.mqtt_retained_limit,
            retained_expiry_s=settings.mqtt_retained_expiry_s,
            store_bytes=settings.mqtt_store_bytes,
        )


def check_topic(topic: str) -> None:
    """Check the topic of a message.

    Raises:
        ProtocolError: it is not a topic name, or has too many bytes or levels.
    """
    check_topic_name(topic, max_levels=TOPIC_LEVELS, max_bytes=TOPIC_BYTES)


class ConnectRate:
    """Limits the number of CONNECTs per second, with a token bucket for two seconds.

    In each period of two seconds, an address may use its share of them.
    """

    def __init__(self, per_s: int, share_percent: int = 100) -> None:
        self._per_s = per_s
        self._left = 2.0 * per_s
        self._at = 0.0
        self._most = max(1, 2 * per_s * share_percent // 100)
        self._by_peer: collections.Counter[str] = collections.Counter()
        self._period = 0

    def take(self, now: float, peer: str = "") -> bool:
        """Count one connection; return False if there were too many."""
        if int(now) // 2 != self._period:
            self._period = int(now) // 2
            self._by_peer.clear()
        if self._by_peer[peer] >= self._most:
            return False
        self._left = min(2.0 * self._per_s, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        self._by_peer[peer] += 1
        return True
