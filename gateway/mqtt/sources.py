"""MQTT sources: the interface that the broker adapters share.

A source keeps one connection to a broker. It passes every message of the served projects to the
gateway once, in the broker's order. It acknowledges a message to the broker when the gateway calls
`ack`. The broker delivers unacknowledged messages again after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from fieldbrook.gateway.channel import project_name

# Limits of all unacknowledged messages: messages in progress, and waiting ones
# (`gateway.mqtt.backlog`).
UNACKNOWLEDGED_HIGH = 24_000
UNACKNOWLEDGED_LOW = 12_000
UNACKNOWLEDGED_HIGH_BYTES = 128 << 20
UNACKNOWLEDGED_LOW_BYTES = 64 << 20

_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 1.0


def _never() -> bool:
    return False


class Delivery(NamedTuple):
    """One message from the broker.

    `sequence` identifies a QoS 1 message and is the same for each delivery of it; it is empty for
    QoS 0. `may_repeat` is False if this is certainly the first delivery. An external broker may
    reuse a `sequence` later for another message. So `sequence` identifies a message only if
    `may_repeat` is True.

    The gateway calls `ack` in the loop when the event cannot be lost any more. It does so for QoS
    0, too, because `ack` also makes room for the next message. Late and repeated calls do nothing.
    `stale` says whether the connection was lost before the acknowledgement; then the broker
    delivers the message again.
    """

    topic: str
    payload: bytes
    qos: int
    sequence: str
    ack: Callable[[], None]
    may_repeat: bool
    stale: Callable[[], bool] = _never


OnDelivery = Callable[[Delivery], None]


class Source(Protocol):
    """A connection to a broker. Every method is called in the loop's thread.

    The gateway holds at most about `UNACKNOWLEDGED_HIGH` unacknowledged messages, or
    `UNACKNOWLEDGED_HIGH_BYTES`. Further QoS 1 messages wait in the broker.
    """

    @property
    def connected(self) -> bool:
        """Whether messages can arrive now."""

    async def start(self, on_delivery: OnDelivery) -> None:
        """Begin to connect and return; the source reconnects by itself until `stop`."""

    def set_topics(self, projects: frozenset[str]) -> None:
        """Serve these projects: the topic `<name>` and all topics below `<name>/push/`."""

    def publish(self, topic: str, payload: bytes) -> None:
        """Send a message with QoS 0; it is lost without a connection or without room."""

    async def stop(self) -> None:
        """Send the acknowledgements given so far and disconnect."""


def is_ingress(topic: str, projects: frozenset[str]) -> bool:
    """Whether a topic is an ingress topic of a served project."""
    channel, slash, rest = topic.partition("/")
    if slash and not rest.startswith("push/"):
        return False
    return channel in projects or project_name(channel) in projects


def filters_of(project: str) -> list[str]:
    """The MQTT topic filters that cover a project's ingress."""
    return [project, f"{project}/push/#"]


def next_delay(delay_s: float) -> float:
    """Return the delay before the next attempt to connect, from the last delay; 0 gives the first
    one."""
    return min(max(2 * delay_s, _FIRST_DELAY_S), _LONGEST_DELAY_S)
