"""The source for the embedded broker, which reads JetStream instead of MQTT.

nats-server stores each QoS 1 message in the JetStream stream `$MQTT_msgs` before it sends PUBACK.
A durable pull consumer reads that stream. Its position outlives every process. A reset to its
acknowledgement floor makes the server deliver unacknowledged messages again at once, in order and
before newer ones. Over MQTT this server would grant one session 63 QoS 1 subscriptions, and would
redeliver after newer messages. QoS 0 messages are not stored; they are read from the subjects of
their topics.

Source: ADR-8, ADR-15 and ADR-60 of the NATS architecture; docs/decisions/0003-embedded-broker.md.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fieldbrook.core.errors import NodeError
from fieldbrook.gateway.mqtt import broker_bounds
from fieldbrook.gateway.mqtt.broker_bounds import Bounds, StateUsage
from fieldbrook.gateway.mqtt.broker_logins import SUBJECT, Logins
from fieldbrook.gateway.mqtt.embedded_broker import NODE_CONSUMER
from fieldbrook.gateway.mqtt.old_broker.drain import sequence_of, topic_of
from fieldbrook.gateway.mqtt.old_broker.nats_wire import (
    NOT_FOUND,
    Endpoint,
    NatsConnection,
    RequestError,
)
from fieldbrook.gateway.mqtt.sources import (
    UNACKNOWLEDGED_HIGH,
    UNACKNOWLEDGED_HIGH_BYTES,
    UNACKNOWLEDGED_LOW,
    UNACKNOWLEDGED_LOW_BYTES,
    Delivery,
    OnDelivery,
    is_ingress,
    masked,
    next_delay,
)

log = logging.getLogger(__name__)

STREAM = "$MQTT_msgs"
CONSUMER = NODE_CONSUMER
_SUBJECT_PREFIX = "$MQTT.msgs."
_PREFIX_BYTES = len(_SUBJECT_PREFIX)
_PROBE = _SUBJECT_PREFIX + "$fieldbrook"  # no project has that name
_CORE_SUBJECTS = ("*", "*.push.>")
_NEXT = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}"
_API = "$JS.API"
_NAME = "fieldbrook mqtt gateway"
_QOS_HEADER = b"\r\nNmqtt-Pub:"
_QOS_0 = b"0"
_STATUS = re.compile(rb"NATS/1\.0 (\d+)")
_LEFT = re.compile(rb"\r\nNats-Pending-Messages: *(\d+)", re.IGNORECASE)
_REQUEST_TIMEOUT_STATUS = b"408"
_REQUEST_ENDED_STATUS = b"409"
_HEARTBEAT_STATUS = b"100"

_CONNECT_LIMIT_S = 2
_PING_S = 5
_STOP_LIMIT_S = 2.0
_PULL_LIFETIME_NS = 600 * 10**9
# Acknowledgements cannot get lost on an open connection, and a new connection resets the consumer.
# Redelivery after a short time would only repeat messages that a slow project still works on.
_ACK_WAIT_S = 7 * 86_400
# Messages that were put back, because their project cannot take them now, count as pending too.
_PENDING_LIMIT = 100_000


class NatsSource:
    """The embedded broker as a source; see `sources.Source`."""

    def __init__(
        self,
        endpoint: Callable[[], Endpoint],
        bounds: Bounds | None = None,
        logins: Logins | None = None,
    ) -> None:
        """Create a source that is not connected.

        Args:
            endpoint: returns the broker's current address; may raise a `NodeError`.
            bounds: the limits of the state that the broker keeps for devices.
            logins: accepts devices that send a user name and a password; None accepts none.
        """
        self._logins = logins
        self._endpoint = endpoint
        self._bounds = bounds or Bounds()
        self._projects: frozenset[str] = frozenset()
        self._is_misaddressed: Callable[[str], bool] = lambda topic: False
        self._session: _Session | None = None
        self._connected = False
        self._task: asyncio.Task[None] | None = None
        self._deliver: OnDelivery
        self._in_flight = InFlight()
        self._stopping = asyncio.Event()

    @property
    def connected(self) -> bool:
        """Whether messages can arrive now."""
        return self._connected

    async def start(self, on_delivery: OnDelivery) -> None:
        """Begin to connect."""
        self._deliver = on_delivery
        self._task = asyncio.get_running_loop().create_task(self._run())

    def set_topics(self, projects: frozenset[str]) -> None:
        """Serve these projects from the next message on."""
        self._projects = projects

    def deliver_misaddressed(self, is_misaddressed: Callable[[str], bool]) -> None:
        """Also deliver messages for unknown projects when `is_misaddressed` accepts their topic."""
        self._is_misaddressed = is_misaddressed

    def publish(self, topic: str, payload: bytes) -> None:
        """Send a message with QoS 0; it is lost without a connection or without room."""
        if self._session is not None:
            self._session.publish(subject_of(topic), payload)

    async def probe(self, limit_s: float) -> str | None:
        """Ask the broker to store a message within `limit_s` seconds.

        Returns:
            "" when it did, the reason when it did not, None when there was no connection.
        """
        session = self._session
        if session is None or not self._connected:
            return None
        reason = await session.probe(limit_s)
        return reason if session is self._session and self._connected else None

    async def read_usage(self) -> Sequence[StateUsage] | None:
        """The state that the broker keeps for devices; None when it could not be read."""
        session = self._session
        if session is None or not self._connected:
            return None
        return await session.read_usage(self._bounds)

    async def stop(self) -> None:
        """Send the acknowledgements given so far and disconnect."""
        if self._task is None:
            return
        self._stopping.set()
        if self._session is not None:
            self._session.stop()
        await self._task
        self._task = None

    async def _run(self) -> None:
        delay_s, was_connected = 0.0, True
        while not self._stopping.is_set():
            # Set before it is open: messages arrive, and are acknowledged, during `open`.
            session = self._session = _Session(self._in_flight, self._on_message)
            try:
                await session.open(self._endpoint(), self._logins)
                await session.apply(self._bounds)
                log.info("connected to the embedded broker")
                delay_s, was_connected = 0.0, True
                self._connected = True
                reason = await session.watch()
            except (OSError, TimeoutError, NodeError) as error:
                reason = str(error) or type(error).__name__
            except Exception as error:
                log.exception("the connection to the embedded broker failed")
                reason = type(error).__name__
            # Unset before it is closed: later acknowledgements belong to the next session.
            self._connected, self._session = False, None
            self._in_flight.disconnected()
            await session.close()
            if was_connected and not self._stopping.is_set():
                log.warning("no connection to the embedded broker: %s", reason)
            was_connected = False
            delay_s = next_delay(delay_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)

    def _on_message(self, topic: str, payload: bytes, sequence: str) -> bool:
        """Deliver a message; False when it is neither for a served project nor misaddressed."""
        if not is_ingress(topic, self._projects) and not self._is_misaddressed(topic):
            return False
        qos = 1 if sequence else 0
        number = self._in_flight.add(sequence, len(payload))
        ack, nack = partial(self._acknowledge, number), partial(self._nack, number)
        try:
            self._deliver(Delivery(topic, payload, qos, sequence, ack, bool(sequence), nack))
        except Exception:
            log.exception(
                "the message on %s could not be processed; it stays at the broker", masked(topic)
            )
        return True

    def _acknowledge(self, number: int) -> None:
        sequence = self._in_flight.finish(number)
        if sequence and self._session is not None:
            self._session.acknowledge(sequence)

    def _nack(self, number: int, delay_s: float) -> bool:
        reply = self._in_flight.nack(number)
        if reply and self._session is not None:
            self._session.nack(reply, delay_s)
        return reply is not None


class InFlight:
    """The messages that are not acknowledged to the broker, across connections.

    Deduplicates redeliveries after a lost connection. A message in work is remembered by its
    sequence, so a redelivery of it is not handed over again. A message that the gateway finishes
    before its redelivery is remembered until then, and its redelivery is acknowledged only.
    """

    def __init__(self) -> None:
        self.stored = 0
        self.stored_bytes = 0
        self.unstored = 0
        self.unstored_bytes = 0
        self._numbered: dict[int, tuple[str, int]] = {}
        self._working: set[str] = set()
        self._replies: dict[str, str] = {}
        self._done: set[str] = set()
        self._next = 0

    def add(self, sequence: str, size: int) -> int:
        """Count a message; return its number for `finish` and `nack`."""
        self._next += 1
        self._numbered[self._next] = (sequence, size)
        if sequence:
            self.stored += 1
            self.stored_bytes += size
            self._working.add(sequence)
        else:
            self.unstored += 1
            self.unstored_bytes += size
        return self._next

    @property
    def has_room_for_unstored(self) -> bool:
        """Whether a QoS 0 message, which the broker does not store, can be taken."""
        return (
            self.unstored < UNACKNOWLEDGED_HIGH and self.unstored_bytes < UNACKNOWLEDGED_HIGH_BYTES
        )

    def finish(self, number: int) -> str:
        """Forget a finished message; return its sequence, or "" when none is to be acknowledged."""
        sequence, size = self._numbered.pop(number, ("", -1))
        if size < 0:
            return ""
        if not sequence:
            self.unstored -= 1
            self.unstored_bytes -= size
            return ""
        self.stored -= 1
        self.stored_bytes -= size
        self._working.discard(sequence)
        if sequence not in self._replies:
            self._done.add(sequence)  # of a lost connection: acknowledged at its redelivery
        return sequence

    def nack(self, number: int) -> str | None:
        """Forget a message that the broker has to deliver again.

        Returns:
            The reply subject for the negative acknowledgement; "" when the connection is lost, so
            that the broker redelivers by itself; None when the message is not stored.
        """
        sequence, size = self._numbered.get(number, ("", -1))
        if not sequence:
            return None
        del self._numbered[number]
        self.stored -= 1
        self.stored_bytes -= size
        self._working.discard(sequence)
        return self._replies.pop(sequence, "")

    def arrived(self, sequence: str, reply: str) -> bool:
        """Remember the reply subject; False when the message is in work or done already."""
        self._replies[sequence] = reply
        return sequence not in self._working and sequence not in self._done

    def settle(self, sequence: str) -> str | None:
        """Forget a message; return its reply subject once, then None."""
        self._done.discard(sequence)
        return self._replies.pop(sequence, None)

    def is_done(self, sequence: str) -> bool:
        """Whether the gateway finished the message while it could not be acknowledged."""
        return sequence in self._done

    def disconnected(self) -> None:
        """Forget the reply subjects, which are void after a lost connection."""
        self._replies.clear()

    def connected(self, floor: int) -> None:
        """Forget finished messages up to `floor`, which the broker counts as acknowledged."""
        self._done = {sequence for sequence in self._done if position(sequence) > floor}


class _Session:
    """One session with the broker, from its opening to its loss.

    A session has two NATS connections. The server has no flow control for QoS 0 messages, so a
    flood of them may make it close their connection. Stored messages use the other one.
    """

    def __init__(self, in_flight: InFlight, hand_over: Callable[[str, bytes, str], bool]) -> None:
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._in_flight = in_flight
        self._hand_over = hand_over
        self._stored = NatsConnection(self._end, self._wake)
        self._unstored = NatsConnection(self._end, lambda: None)
        self._inbox = ""
        self._acks: list[str] = []
        self._messages: list[tuple[str, bytes]] = []
        self._write_scheduled = False
        self._requested = 0
        self._dropped = 0
        self._stopped = False

    async def open(self, endpoint: Endpoint, logins: Logins | None) -> None:
        """Connect, reset the consumer to the first unacknowledged message, start to read."""
        await self._stored.open(endpoint, _NAME, _CONNECT_LIMIT_S)
        if logins is not None:
            self._stored.subscribe(SUBJECT, partial(self._on_login, logins))
        floor = await _prepare_consumer(self._stored)
        self._in_flight.connected(floor)
        self._inbox = self._stored.new_inbox()
        self._stored.subscribe(self._inbox, self._on_stored)
        self._wake()
        await self._unstored.open(endpoint, _NAME, _CONNECT_LIMIT_S)
        for subject in _CORE_SUBJECTS:
            self._unstored.subscribe(subject, self._on_core)
        await self._unstored.flush(_CONNECT_LIMIT_S)

    async def apply(self, bounds: Bounds) -> None:
        """Set the broker's limits of what it keeps for devices.

        When the broker refuses, for example because its disk is full, the session goes on without
        new limits, and the next session tries again.
        """
        try:
            await broker_bounds.apply(self._stored, bounds)
        except (RequestError, TimeoutError) as error:
            log.warning("the limits of the embedded broker could not be set: %r", error)

    async def read_usage(self, bounds: Bounds) -> Sequence[StateUsage] | None:
        """Drop messages above the limit, then read what the broker keeps for devices.

        Returns:
            The state by kind; None when the broker does not answer.
        """
        try:
            dropped = await broker_bounds.drop_finished(self._stored, bounds)
            if dropped:
                log.warning("dropped %d messages for disconnected devices", dropped)
            return await broker_bounds.read_usage(self._stored, bounds)
        except (OSError, TimeoutError, ValueError) as error:
            log.debug("the state of the embedded broker could not be read: %r", error)
            return None

    def stop(self) -> None:
        """End the session; `close` sends the waiting acknowledgements first."""
        self._stopped = True
        self._end("stopped")

    async def watch(self) -> str:
        """Wait for the end of the session; return its reason."""
        while True:
            done, _ = await asyncio.wait([self.lost], timeout=_PING_S)
            if done:
                return self.lost.result()
            if not (self._stored.is_alive() and self._unstored.is_alive()):
                self._end("the server does not answer")

    async def close(self) -> None:
        """Close the connections; after `stop`, send the waiting bytes first. Never raises."""
        if self._stopped and self._stored.connected:
            self._write()
            await _attempt(self._stored.flush(_STOP_LIMIT_S))
        for connection in (self._stored, self._unstored):
            connection.close()
        self._end("closed")

    def acknowledge(self, sequence: str) -> None:
        """Acknowledge a message with the next write."""
        reply = self._in_flight.settle(sequence)
        if reply is not None:
            self._acks.append(f"PUB {reply} 0\r\n\r\n")
            if not self._write_scheduled:
                self._wake()

    def nack(self, reply: str, delay_s: float) -> None:
        """Ask the broker, with the next write, to deliver a message again after `delay_s`."""
        word = f'-NAK {{"delay": {int(delay_s * 1e9)}}}'
        self._acks.append(f"PUB {reply} {len(word)}\r\n{word}\r\n")
        self._wake()

    def publish(self, subject: str, payload: bytes) -> None:
        """Send a message with the next write, if there is room."""
        if len(self._messages) < UNACKNOWLEDGED_HIGH:
            self._messages.append((subject, payload))
            self._wake()

    async def probe(self, limit_s: float) -> str:
        """Ask the broker to store a message of no project; return "" or the reason of a failure."""
        try:
            await self._stored.ask(_PROBE, None, limit_s)
        except TimeoutError:
            return f"the broker did not store a message within {limit_s:.0f} s"
        except (OSError, ValueError) as failure:
            return str(failure) or type(failure).__name__
        return ""

    def _end(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    def _on_login(
        self, logins: Logins, _subject: bytes, reply: bytes, _head: bytes, body: bytes
    ) -> None:
        answer = logins.answer(body) if reply else None
        if answer is not None:
            self._stored.write(b"PUB %b %d\r\n%b\r\n" % (reply, len(answer), answer))

    # Stored messages.

    def _on_stored(self, subject: bytes, reply: bytes, head: bytes, body: bytes) -> None:
        if self.lost.done():
            return  # the broker delivers it again
        if not reply:
            self._on_status(head)
            return
        self._requested -= 1
        answer = reply.decode()
        sequence = sequence_of(answer)
        if self._in_flight.arrived(sequence, answer):
            topic = topic_of(_text(subject[_PREFIX_BYTES:]))
            if not self._hand_over(topic, body, sequence):
                self.acknowledge(sequence)
        elif self._in_flight.is_done(sequence):
            self.acknowledge(sequence)
        if not self._write_scheduled:
            self._wake()

    def _on_status(self, head: bytes) -> None:
        """Handle the end of a pull request that was not filled or cannot be served."""
        found, left = _STATUS.match(head), _LEFT.search(head)
        status = found[1] if found else b""
        if status in (_REQUEST_TIMEOUT_STATUS, _REQUEST_ENDED_STATUS) and left is not None:
            self._requested -= int(left[1])
            self._wake()
        elif status != _HEARTBEAT_STATUS:
            self._end(f"the message request failed with status {status.decode()}")

    def _wake(self) -> None:
        """Schedule one write of acknowledgements and requests per turn of the loop."""
        if not self._write_scheduled:
            self._write_scheduled = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._write_scheduled = False
        if not self._inbox or not self._stored.writable:
            return  # called again when the session is open and the write buffer has room
        parts = [part.encode() for part in ("".join(self._acks),) if part]
        self._acks.clear()
        for subject, payload in self._messages:
            parts += (f"PUB {subject} {len(payload)}\r\n".encode(), payload, b"\r\n")
        self._messages.clear()
        parts.append(self._request())
        if any(parts):
            self._stored.write(b"".join(parts))

    def _request(self) -> bytes:
        """A pull request for as many messages as there is room for, in large steps."""
        held = self._in_flight.stored + self._requested
        if held > UNACKNOWLEDGED_LOW or self._in_flight.stored_bytes > UNACKNOWLEDGED_LOW_BYTES:
            return b""
        wanted = UNACKNOWLEDGED_HIGH - held
        self._requested += wanted
        request = {
            "batch": wanted,
            "max_bytes": UNACKNOWLEDGED_HIGH_BYTES,
            "expires": _PULL_LIFETIME_NS,
        }
        body = json.dumps(request)
        return f"PUB {_NEXT} {self._inbox} {len(body)}\r\n{body}\r\n".encode()

    # Messages that are not stored.

    def _on_core(self, subject: bytes, _reply: bytes, head: bytes, body: bytes) -> None:
        at = head.find(_QOS_HEADER)
        if at >= 0 and not head.startswith(_QOS_0, at + len(_QOS_HEADER)):
            return  # the copy of a stored message
        if self.lost.done():
            return
        if not self._in_flight.has_room_for_unstored:
            if not self._dropped:
                log.warning("too many QoS 0 messages are waiting: further ones are dropped")
            self._dropped += 1
            return
        if self._dropped:
            log.warning("%d QoS 0 messages were dropped", self._dropped)
            self._dropped = 0
        self._hand_over(topic_of(_text(subject)), body, "")


async def _attempt(work: Coroutine[None, None, None]) -> None:
    """Wait for work at a closing connection, at most 2 s; ignore its failure."""
    try:
        await asyncio.wait_for(work, _STOP_LIMIT_S)
    except (OSError, TimeoutError) as error:
        log.debug("closing a connection to the embedded broker: %r", error)


async def _prepare_consumer(connection: NatsConnection) -> int:
    """Create the stream and the consumer if absent, and reset the consumer.

    The reset makes the server deliver unacknowledged messages first. The consumer has no subject
    filter: with a filter, a consumer that lags behind costs the server a search for each message
    and gets a sixth of the messages per second.

    Returns:
        The sequence up to which everything is acknowledged.
    """
    consumer = f"{STREAM}.{CONSUMER}"
    if not await _exists(connection, f"STREAM.INFO.{STREAM}"):
        # As the server itself creates it when the first device connects.
        stream = {
            "name": STREAM,
            "subjects": [_SUBJECT_PREFIX + ">"],
            "retention": "interest",
            "storage": "file",
            "num_replicas": 1,
        }
        await _ask(connection, f"STREAM.CREATE.{STREAM}", stream)
    if not await _exists(connection, f"CONSUMER.INFO.{consumer}"):
        config = {
            "durable_name": CONSUMER,
            "ack_policy": "explicit",
            "ack_wait": _ACK_WAIT_S * 10**9,
            "max_ack_pending": _PENDING_LIMIT,
            "deliver_policy": "all",
        }
        question = {"stream_name": STREAM, "config": config}
        await _ask(connection, f"CONSUMER.DURABLE.CREATE.{consumer}", question)
    reset = await _ask(connection, f"CONSUMER.RESET.{consumer}")
    return int(reset["reset_seq"]) - 1


async def _ask(
    connection: NatsConnection, what: str, question: dict[str, Any] | None = None
) -> dict[str, Any]:
    return await connection.ask(f"{_API}.{what}", question, _CONNECT_LIMIT_S)


async def _exists(connection: NatsConnection, what: str) -> bool:
    try:
        await _ask(connection, what)
    except RequestError as error:
        if error.code != NOT_FOUND:
            raise
        return False
    return True


def _text(subject: bytes) -> str:
    """Decode a subject; a subject that is not UTF-8 names no project."""
    return subject.decode("utf-8", "surrogateescape")


def position(sequence: str) -> int:
    """The position of a message in the stream, from its sequence."""
    return int(sequence.partition(".")[0])


def subject_of(topic: str) -> str:
    """The NATS subject of an MQTT topic; the inverse of `topic_of`."""
    return ".".join(level.replace(".", "//") or "/" for level in topic.split("/"))
