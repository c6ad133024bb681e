"""Messages of the embedded broker, read natively instead of over MQTT.

nats-server stores each QoS 1 message in the JetStream stream `$MQTT_msgs` before it
answers PUBACK. A durable pull consumer reads that stream: its place outlives every
process, and resetting it to its acknowledgement floor makes unacknowledged messages come
again at once, in order and before newer ones. Over MQTT this server would grant one
session 63 QoS 1 subscriptions and redeliver after newer messages.
QoS 0 messages are not stored; they are read from the topics' own subjects.

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
from fieldbrook.gateway.mqtt.broker_bounds import Bounds, Kept
from fieldbrook.gateway.mqtt.broker_logins import SUBJECT, Logins
from fieldbrook.gateway.mqtt.embedded_broker import NODE_CONSUMER, Endpoint
from fieldbrook.gateway.mqtt.nats_wire import NOT_FOUND, NatsConnection, RequestError
from fieldbrook.gateway.mqtt.sources import (
    UNACKNOWLEDGED_HIGH,
    UNACKNOWLEDGED_HIGH_BYTES,
    UNACKNOWLEDGED_LOW,
    UNACKNOWLEDGED_LOW_BYTES,
    Delivery,
    OnDelivery,
    is_ingress,
    next_delay,
    shown,
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
# Acknowledgements cannot get lost on a living connection, and a new one resets the
# consumer: redelivery by time would only repeat what a slow project is still working on.
_ACK_WAIT_S = 7 * 86_400
# Messages that were put back count as pending, too: of projects that cannot take theirs now.
_PENDING_LIMIT = 100_000


class NatsSource:
    """The embedded broker as a source; see `sources.Source`."""

    def __init__(
        self,
        endpoint: Callable[[], Endpoint],
        bounds: Bounds | None = None,
        logins: Logins | None = None,
    ) -> None:
        """`endpoint` tells where the broker listens now; it may raise a `NodeError`. `bounds`
        are those of what the broker keeps for devices, `logins` lets in those that come with a
        user name and a password."""
        self._logins = logins
        self._endpoint = endpoint
        self._bounds = bounds or Bounds()
        self._projects: frozenset[str] = frozenset()
        self._is_stray: Callable[[str], bool] = lambda topic: False
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
        """Serve these projects: takes effect with the next message."""
        self._projects = projects

    def take_strays(self, is_stray: Callable[[str], bool]) -> None:
        """Hand over messages of no served project, too, if `is_stray` says so of their topic."""
        self._is_stray = is_stray

    def publish(self, topic: str, payload: bytes) -> None:
        """Send a message with QoS 0: without a connection it is lost."""
        if self._session is not None:
            self._session.publish(subject_of(topic), payload)

    async def probe(self, limit_s: float) -> str | None:
        """Have the broker store a message within this time: why it did not, "" when it did,
        None when there was no connection for that."""
        session = self._session
        if session is None or not self._connected:
            return None
        reason = await session.probe(limit_s)
        return reason if session is self._session and self._connected else None

    async def kept(self) -> Sequence[Kept] | None:
        """What the broker keeps for devices; None when it could not be asked."""
        session = self._session
        if session is None or not self._connected:
            return None
        return await session.kept(self._bounds)

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
            # Known before it is open: messages arrive, and are acknowledged, while it opens.
            session = self._session = _Session(self._in_flight, self._on_message)
            try:
                await session.open(self._endpoint(), self._logins)
                await session.hold(self._bounds)
                log.info("connected to the embedded broker")
                delay_s, was_connected = 0.0, True
                self._connected = True
                reason = await session.watch()
            except (OSError, TimeoutError, NodeError) as error:
                reason = str(error) or type(error).__name__
            except Exception as error:
                log.exception("the connection to the embedded broker failed")
                reason = type(error).__name__
            # Before it is closed: what the gateway finishes from here on is for the next one.
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
        """Hand a message over; False when it is not for a served project and no stray."""
        if not is_ingress(topic, self._projects) and not self._is_stray(topic):
            return False
        qos = 1 if sequence else 0
        number = self._in_flight.add(sequence, len(payload))
        ack, put_back = partial(self._acknowledge, number), partial(self._put_back, number)
        try:
            self._deliver(Delivery(topic, payload, qos, sequence, ack, bool(sequence), put_back))
        except Exception:
            log.exception("message on %s was not taken; it stays the broker's", shown(topic))
        return True

    def _acknowledge(self, number: int) -> None:
        sequence = self._in_flight.finish(number)
        if sequence and self._session is not None:
            self._session.acknowledge(sequence)

    def _put_back(self, number: int, delay_s: float) -> bool:
        reply = self._in_flight.put_back(number)
        if reply and self._session is not None:
            self._session.put_back(reply, delay_s)
        return reply is not None


class InFlight:
    """What the gateway has not acknowledged, over the end of a connection.

    A message that comes again because the connection was lost is not handed over twice:
    it is remembered while the gateway works on it, and when the gateway is done before the
    message came again, until it does.
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
        """Count a message; returns the number to `finish` it with."""
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
        """Whether a message that nobody stores can be taken."""
        return (
            self.unstored < UNACKNOWLEDGED_HIGH and self.unstored_bytes < UNACKNOWLEDGED_HIGH_BYTES
        )

    def finish(self, number: int) -> str:
        """The gateway is done with it: its sequence, or "" when there is nothing to tell."""
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
            self._done.add(sequence)  # of a lost connection: settled when it comes again
        return sequence

    def put_back(self, number: int) -> str | None:
        """The broker is to deliver it again: the reply subject on which to say so, "" when
        its connection is lost and it comes by itself, None when nobody has stored it."""
        sequence, size = self._numbered.get(number, ("", -1))
        if not sequence:
            return None
        del self._numbered[number]
        self.stored -= 1
        self.stored_bytes -= size
        self._working.discard(sequence)
        return self._replies.pop(sequence, "")

    def arrived(self, sequence: str, reply: str) -> bool:
        """Remember where to acknowledge; False when it must not be handed over (again)."""
        self._replies[sequence] = reply
        return sequence not in self._working and sequence not in self._done

    def settle(self, sequence: str) -> str | None:
        """The reply subject to acknowledge on, once."""
        self._done.discard(sequence)
        return self._replies.pop(sequence, None)

    def is_done(self, sequence: str) -> bool:
        """Whether the gateway finished it while there was no connection to say so."""
        return sequence in self._done

    def disconnected(self) -> None:
        """Reply subjects of a lost connection are void."""
        self._replies.clear()

    def connected(self, floor: int) -> None:
        """The broker counts everything up to `floor` as acknowledged: forget it."""
        self._done = {sequence for sequence in self._done if position(sequence) > floor}


class _Session:
    """One connection to the broker, from its opening to its loss.

    It is two NATS connections: on that of QoS 0 the server does not hold back, so a flood
    may make it cut that one, and the stored messages stay out of its way.
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
        """Connect, put the consumer back to what is unacknowledged, start to read."""
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

    async def hold(self, bounds: Bounds) -> None:
        """Have the broker keep no more for devices than the bounds say. One that cannot, for
        its disk is full, is read all the same, and asked again with the next connection."""
        try:
            await broker_bounds.hold(self._stored, bounds)
        except (RequestError, TimeoutError) as error:
            log.warning("the broker's limits were not set: %r", error)

    async def kept(self, bounds: Bounds) -> Sequence[Kept] | None:
        """How much the broker keeps for devices, after what is too much was dropped; None when it
        does not say."""
        try:
            dropped = await broker_bounds.relieve(self._stored, bounds)
            if dropped:
                log.warning("%d messages for devices that are away were dropped", dropped)
            return await broker_bounds.look_up(self._stored, bounds)
        except (OSError, TimeoutError, ValueError) as error:
            log.debug("what the broker keeps is not known: %r", error)
            return None

    def stop(self) -> None:
        """End the session, after what is waiting was sent."""
        self._stopped = True
        self._end("stopped")

    async def watch(self) -> str:
        """Wait for the end of the session; returns why it ended."""
        while True:
            done, _ = await asyncio.wait([self.lost], timeout=_PING_S)
            if done:
                return self.lost.result()
            if not (self._stored.is_alive() and self._unstored.is_alive()):
                self._end("the server does not answer")

    async def close(self) -> None:
        """Send what is waiting, if that is still possible, and close; never raises."""
        if self._stopped and self._stored.connected:
            self._write()
            await _attempt(self._stored.flush(_STOP_LIMIT_S))
        for connection in (self._stored, self._unstored):
            connection.close()
        self._end("closed")

    def acknowledge(self, sequence: str) -> None:
        """Tell the broker, with the next write, that this message is done."""
        reply = self._in_flight.settle(sequence)
        if reply is not None:
            self._acks.append(f"PUB {reply} 0\r\n\r\n")
            if not self._write_scheduled:
                self._wake()

    def put_back(self, reply: str, delay_s: float) -> None:
        """Tell the broker, with the next write, to deliver this message again later."""
        word = f'-NAK {{"delay": {int(delay_s * 1e9)}}}'
        self._acks.append(f"PUB {reply} {len(word)}\r\n{word}\r\n")
        self._wake()

    def publish(self, subject: str, payload: bytes) -> None:
        """Send a message with the next write, if there is room."""
        if len(self._messages) < UNACKNOWLEDGED_HIGH:
            self._messages.append((subject, payload))
            self._wake()

    async def probe(self, limit_s: float) -> str:
        """Have the broker store a message of no project; why it did not, "" when it did."""
        try:
            await self._stored.ask(_PROBE, None, limit_s)
        except TimeoutError:
            return f"a message was not stored within {limit_s:.0f} s"
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
            return  # it comes again
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
        """A request for messages ended before it was filled, or cannot be served."""
        found, left = _STATUS.match(head), _LEFT.search(head)
        status = found[1] if found else b""
        if status in (_REQUEST_TIMEOUT_STATUS, _REQUEST_ENDED_STATUS) and left is not None:
            self._requested -= int(left[1])
            self._wake()
        elif status != _HEARTBEAT_STATUS:
            self._end(f"the message request failed with status {status.decode()}")

    def _wake(self) -> None:
        """Acknowledgements and requests leave in one write for each turn of the loop."""
        if not self._write_scheduled:
            self._write_scheduled = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._write_scheduled = False
        if not self._inbox or not self._stored.writable:
            return  # it is called again when it is open, and when the server takes more
        parts = [part.encode() for part in ("".join(self._acks),) if part]
        self._acks.clear()
        for subject, payload in self._messages:
            parts += (f"PUB {subject} {len(payload)}\r\n".encode(), payload, b"\r\n")
        self._messages.clear()
        parts.append(self._request())
        if any(parts):
            self._stored.write(b"".join(parts))

    def _request(self) -> bytes:
        """Ask for as many messages as there is room for, in large steps."""
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
            return  # the copy of a stored one
        if self.lost.done():
            return
        if not self._in_flight.has_room_for_unstored:
            if not self._dropped:
                log.warning("too many QoS 0 messages: dropping what has no room")
            self._dropped += 1
            return
        if self._dropped:
            log.warning("%d QoS 0 messages were dropped", self._dropped)
            self._dropped = 0
        self._hand_over(topic_of(_text(subject)), body, "")


async def _attempt(work: Coroutine[None, None, None]) -> None:
    """Do this if it can be done: the connection that it is for is given up anyway."""
    try:
        await asyncio.wait_for(work, _STOP_LIMIT_S)
    except (OSError, TimeoutError) as error:
        log.debug("closing a connection to the embedded broker: %r", error)


async def _prepare_consumer(connection: NatsConnection) -> int:
    """Have the stream and the consumer, and deliver what is unacknowledged first.

    The consumer has no subject filter: with one, a consumer that lags behind costs the
    server a search for each message and gets a sixth of the messages per second.

    Returns:
        The sequence up to which everything is acknowledged.
    """
    consumer = f"{STREAM}.{CONSUMER}"
    if not await _exists(connection, f"STREAM.INFO.{STREAM}"):
        # As the server itself makes it when the first device connects.
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
    """A subject; what is no UTF-8 is no project's name either way."""
    return subject.decode("utf-8", "surrogateescape")


def sequence_of(reply: str) -> str:
    """What names a stored message, from the subject on which it is acknowledged.

    Position in the stream and time of storage in ns: after a power cut the server may
    give the positions it lost a second time.
    """
    # $JS.ACK.<stream>.<consumer>.<delivered>.<position>.<consumer position>.<time>.<pending>
    tokens = reply.split(".")
    return f"{tokens[5]}.{tokens[7]}"


def position(sequence: str) -> int:
    """The position in the stream."""
    return int(sequence.partition(".")[0])


def topic_of(subject: str) -> str:
    """The MQTT topic of a NATS subject: `.` was `/`, `//` was `.`, a single `/` marks an
    empty level."""
    if "/" not in subject:
        return subject.replace(".", "/")
    return subject.replace("//", "\0").replace("/", "").replace(".", "/").replace("\0", ".")


def subject_of(topic: str) -> str:
    """The NATS subject of an MQTT topic: what `topic_of` reads."""
    return ".".join(level.replace(".", "//") or "/" for level in topic.split("/"))
