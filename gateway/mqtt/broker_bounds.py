"""Limits of the state that the embedded broker keeps for devices.

Devices connect without an account, and a device can leave three kinds of state at the broker:
retained messages, QoS 2 messages that it has sent and never released, and sessions that outlive
their connection. The server keeps each kind in a JetStream stream of its own, by default
without a limit, and all streams share the disk space of the messages that wait for the node. The
node therefore sets limits on those streams. The server enforces them by itself from then on, even
while no node runs:

- A retained message above the limit is handled and acknowledged, but not retained.
- At a QoS 2 message above the limit, the server closes the connection without PUBREC, so the
  device keeps the message. A message that is not released within a day is dropped.
- A session above the limit is not created: the server closes the connection instead of sending
  CONNACK. Sessions of connected devices count, including clean ones.

Subscriptions with QoS 1 need no limit here, because the server allows a thousand in all. Messages
for the subscriptions of devices that are away lie in the stream of the node's own messages, which
has no limit: `drop_finished` drops them when that stream grows.

Source: JetStream's API (ADR-2, ADR-31 of the NATS architecture) and nats-server 2.15.1, whose
streams have these names; docs/decisions/0003-embedded-broker.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fieldbrook.core.errors import NodeError, UnavailableError
from fieldbrook.core.settings import Settings
from fieldbrook.gateway.mqtt import embedded_broker
from fieldbrook.gateway.mqtt.old_broker.nats_wire import NOT_FOUND, NatsConnection, RequestError
from fieldbrook.observability import metrics
from fieldbrook.observability.health import BROKER_LIMIT, ProcessHealth

log = logging.getLogger(__name__)

T = TypeVar("T")

RETAINED, QOS2, SESSIONS = "retained", "qos2", "sessions"
KINDS = (RETAINED, QOS2, SESSIONS)

POLL_S = 10.0
RETRY_S = 1.0  # the interval while there is no connection
_API = "$JS.API"
_ASK_LIMIT_S = 5.0
_MESSAGES = "$MQTT_msgs"
_OUTGOING = "$MQTT_out"
_RELEASE_WITHIN_NS = 86_400 * 10**9
_RETAINED_BYTES = _QOS2_BYTES = 64 << 20
_SESSIONS_BYTES = 128 << 20
_SESSION_BYTES = 64 << 10  # of one session, with its subscribed topics
_NEARLY = 0.95  # share of the byte limit at which the next message may not fit
_NAMES_LIMIT = 100  # pages of the list of consumers: the server allows far fewer


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of each kind of state, in items, and of the messages that wait, in bytes."""

    retained: int = 1_000
    qos2: int = 10_000
    sessions: int = 100_000
    waiting_bytes: int = 1 << 30

    @classmethod
    def of(cls, settings: Settings) -> Bounds:
        """Take the limits from the settings."""
        return cls(
            settings.mqtt_retained_limit, settings.mqtt_qos2_limit, settings.mqtt_session_limit
        )


class StateUsage(NamedTuple):
    """The amount of one kind of state, and its limits."""

    kind: str
    number: int
    size_bytes: int
    limit: int
    limit_bytes: int

    @property
    def full(self) -> bool:
        """Whether the limit is reached. A limit of 0 does not count, because it was chosen."""
        return self.limit > 0 and (
            self.number >= self.limit or self.size_bytes >= _NEARLY * self.limit_bytes
        )


class _Stream(NamedTuple):
    kind: str
    name: str
    made: dict[str, Any]  # as the server creates it when the first device connects
    limits: dict[str, Any]
    limit: int
    trimmed: bool  # whether state that is already above the limit is dropped


def _streams(bounds: Bounds) -> tuple[_Stream, ...]:
    single = {"max_msgs_per_subject": 1}
    return (
        _Stream(
            RETAINED,
            "$MQTT_rmsgs",
            {"subjects": ["$MQTT.rmsgs.>"], **single},
            _limits(bounds.retained, _RETAINED_BYTES),
            bounds.retained,
            trimmed=True,
        ),
        _Stream(
            QOS2,
            "$MQTT_qos2in",
            {"subjects": ["$MQTT.qos2.in.>"], "discard_new_per_subject": True, **single},
            {**_limits(bounds.qos2, _QOS2_BYTES), "max_age": _RELEASE_WITHIN_NS},
            bounds.qos2,
            trimmed=True,
        ),
        _Stream(
            SESSIONS,
            "$MQTT_sess",
            {"subjects": ["$MQTT.sess.>"], **single},
            {**_limits(bounds.sessions, _SESSIONS_BYTES), "max_msg_size": _SESSION_BYTES},
            bounds.sessions,
            trimmed=False,  # the server also has sessions in memory and refuses one without a row
        ),
    )


def _limits(count: int, size_bytes: int) -> dict[str, Any]:
    """The stream limits; at them, new messages are refused.

    Old messages are not dropped instead: a flood must not displace acknowledged messages.
    """
    limits = {"max_msgs": max(1, count), "max_bytes": size_bytes, "discard": "new"}
    # JetStream reads 0 as "no limit". Every message has more than one byte, so none fits.
    return limits if count else {**limits, "max_msg_size": 1}


async def apply(connection: NatsConnection, bounds: Bounds) -> None:
    """Set the limits on the streams of the running server.

    Raises:
        RequestError: the server refuses.
        OSError, TimeoutError: the server does not answer.
    """
    for stream in _streams(bounds):
        info = await _info(connection, stream.name)
        if info is None:
            config = {"name": stream.name, "storage": "file", "num_replicas": 1}
            question = {**config, **stream.made, **stream.limits}
            await _ask(connection, f"STREAM.CREATE.{stream.name}", question)
            continue
        wanted = {"max_msg_size": -1, "max_age": 0, **stream.limits}
        if any(info["config"].get(name, 0) != value for name, value in wanted.items()):
            question = {**info["config"], **wanted}
            await _ask(connection, f"STREAM.UPDATE.{stream.name}", question)
        excess = info["state"]["messages"] - stream.limit
        if stream.trimmed and excess > 0:
            # A purge without `keep` removes all messages.
            keep = {"keep": stream.limit} if stream.limit else None
            await _ask(connection, f"STREAM.PURGE.{stream.name}", keep)
            log.warning("dropped %d %s that the broker kept above the limit", excess, stream.kind)


async def read_usage(connection: NatsConnection, bounds: Bounds) -> list[StateUsage]:
    """Read the amount of each kind of state.

    Raises: as `apply`.
    """
    found = []
    for stream in _streams(bounds):
        info = await _info(connection, stream.name)
        state = {"messages": 0, "bytes": 0} if info is None else info["state"]
        counts = int(state["messages"]), int(state["bytes"])
        found.append(StateUsage(stream.kind, *counts, stream.limit, stream.limits["max_bytes"]))
    return found


async def drop_finished(connection: NatsConnection, bounds: Bounds) -> int:
    """Drop messages that only devices that are away still wait for.

    Runs when the stream of messages has more than `waiting_bytes`. Drops the messages that the
    node has finished. Events that wait for the node stay, and so do the subscriptions.

    Returns:
        The number of dropped messages.

    Raises: as `apply`.
    """
    stream = await _info(connection, _MESSAGES)
    if stream is None or stream["state"]["bytes"] <= bounds.waiting_bytes:
        return 0
    consumer = await _ask(connection, f"CONSUMER.INFO.{_MESSAGES}.{embedded_broker.NODE_CONSUMER}")
    following = int(consumer["ack_floor"]["stream_seq"]) + 1
    if following <= stream["state"]["first_seq"]:
        return 0  # all messages wait for the node
    answer = await _ask(connection, f"STREAM.PURGE.{_MESSAGES}", {"seq": following})
    return int(answer.get("purged", 0))


async def clear(connection: NatsConnection, kind: str) -> int:
    """Remove all state of one kind.

    Clearing sessions also removes the subscriptions that outlived their connections, and the
    messages that waited for them. The server also has sessions in memory, so the caller has to
    end it after clearing them.

    Returns:
        The number of removed items, without subscriptions and their messages.

    Raises: as `apply`.
    """
    removed = 0
    for stream in _streams(Bounds()):
        if stream.kind == kind and await _info(connection, stream.name) is not None:
            answer = await _ask(connection, f"STREAM.PURGE.{stream.name}")
            removed += int(answer.get("purged", 0))
    if kind == SESSIONS:
        for name in (_MESSAGES, _OUTGOING):
            await _end_subscriptions(connection, name)
    return removed


async def _end_subscriptions(connection: NatsConnection, stream: str) -> None:
    """Remove the consumers that belong to sessions of devices."""
    for _ in range(_NAMES_LIMIT):
        try:
            page = await _ask(connection, f"CONSUMER.NAMES.{stream}", {"offset": 0})
        except RequestError as error:
            if error.code == NOT_FOUND:
                return
            raise
        names = [
            name for name in page.get("consumers") or () if name != embedded_broker.NODE_CONSUMER
        ]
        if not names:
            return
        for name in names:
            await _ask(connection, f"CONSUMER.DELETE.{stream}.{name}")


async def _info(connection: NatsConnection, stream: str) -> dict[str, Any] | None:
    try:
        return await _ask(connection, f"STREAM.INFO.{stream}")
    except RequestError as error:
        if error.code != NOT_FOUND:
            raise
        return None


async def _ask(
    connection: NatsConnection, what: str, question: dict[str, Any] | None = None
) -> dict[str, Any]:
    return await connection.ask(f"{_API}.{what}", question, _ASK_LIMIT_S)


# ---------------------------------------------------------------- watching and asking


class BoundsWatch:
    """Writes the amount of each kind of state to the metrics and reports limits that are reached.

    Args:
        read_usage: reads the amounts; returns None while there is no connection.
        health: where the health condition is raised.
    """

    def __init__(
        self,
        read_usage: Callable[[], Awaitable[Sequence[StateUsage] | None]],
        health: ProcessHealth,
    ) -> None:
        self._read_usage = read_usage
        self._health = health

    async def run(self) -> None:
        """Watch until the task is cancelled."""
        while True:
            await asyncio.sleep(POLL_S if await self.check() else RETRY_S)

    async def check(self) -> bool:
        """Read the amounts once; False when they could not be read."""
        found = await self._read_usage()
        if found is None:
            return False
        for usage in found:
            metrics.put(metrics.BROKER_KEPT[usage.kind], usage.number)
            metrics.put(metrics.BROKER_KEPT_LIMIT[usage.kind], usage.limit)
        # A full stream of retained messages refuses no device: the message itself is handled.
        full = [usage for usage in found if usage.full and usage.kind != RETAINED]
        if not full:
            self._health.clear(BROKER_LIMIT)
            return True
        words = (
            f"{usage.kind}: {usage.number} of {usage.limit}, {usage.size_bytes} of "
            f"{usage.limit_bytes} bytes"
            for usage in full
        )
        self._health.raise_(BROKER_LIMIT, "; ".join(words))
        return True


class BrokerState:
    """Reads and clears the embedded broker's state for management, a connection per call."""

    def __init__(self, data: Path, bounds: Bounds) -> None:
        self._data = data
        self._bounds = bounds

    async def read_usage(self) -> list[StateUsage]:
        """Read the amount of each kind of state.

        Raises:
            UnavailableError: the broker does not answer.
        """
        return await self._with_connection(lambda connection: read_usage(connection, self._bounds))

    async def clear(self, kind: str) -> int:
        """Remove all state of one kind.

        After clearing sessions the broker is ended, and its supervisor starts it again. Connected
        devices have to reconnect.

        Returns:
            The number of removed items.

        Raises:
            UnavailableError: the broker does not answer.
        """
        removed = await self._with_connection(lambda connection: clear(connection, kind))
        if kind == SESSIONS:
            embedded_broker.end(self._data)
        log.warning("an administrator removed %d %s from the broker", removed, kind)
        return removed

    async def _with_connection(self, work: Callable[[NatsConnection], Awaitable[T]]) -> T:
        connection = NatsConnection(lambda reason: None, lambda: None)
        try:
            endpoint = embedded_broker.read_endpoint(self._data)
            await connection.open(endpoint, "fieldbrook management", _ASK_LIMIT_S)
            return await work(connection)
        except (OSError, TimeoutError, NodeError) as error:
            reason = str(error) or type(error).__name__
            raise UnavailableError(what=f"the embedded broker does not answer: {reason}") from error
        finally:
            connection.close()
