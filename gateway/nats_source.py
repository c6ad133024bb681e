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
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import api
from nats.js.errors import NotFoundError

from fieldbrook.broker import Endpoint
from fieldbrook.errors import NodeError
from fieldbrook.gateway.sources import (
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
CONSUMER = "fieldbrook"
_SUBJECT_PREFIX = "$MQTT.msgs."
_CORE_SUBJECTS = ("*", "*.push.>")
_NEXT = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}"
_QOS_HEADER = "Nmqtt-Pub"
_STATUS_HEADER = "Status"
_PENDING_HEADER = "Nats-Pending-Messages"
_REQUEST_TIMEOUT_STATUS = "408"
_REQUEST_ENDED_STATUS = "409"

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

    def __init__(self, endpoint: Callable[[], Endpoint]) -> None:
        """`endpoint` tells where the broker listens now; it may raise a `NodeError`."""
        self._endpoint = endpoint
        self._projects: frozenset[str] = frozenset()
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

    def publish(self, topic: str, payload: bytes) -> None:
        """Send a message with QoS 0: without a connection it is lost."""
        if self._session is not None:
            self._session.publish(subject_of(topic), payload)

    async def stop(self) -> None:
        """Send the acknowledgements given so far and disconnect."""
        if self._task is None:
            return
        # Not by cancelling: the library swallows a cancellation that meets it at work.
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
                await session.open(self._endpoint())
                log.info("connected to the embedded broker")
                delay_s, was_connected = 0.0, True
                self._connected = True
                reason = await session.watch()
            except (OSError, TimeoutError, NodeError, nats.errors.Error) as error:
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
        """Hand a message over; False when it is not for a served project."""
        if not is_ingress(topic, self._projects):
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
        self._in_flight = in_flight
        self._hand_over = hand_over
        self._clients: list[Client] = []
        self._writer: asyncio.Task[None] | None = None
        self._inbox = ""
        self._acks: list[tuple[str, bytes]] = []
        self._messages: list[tuple[str, bytes]] = []
        self._wake = asyncio.Event()
        self._requested = 0
        self._dropped = 0
        self._stopped = False
        self._last_error = "closed by the server"

    async def open(self, endpoint: Endpoint) -> None:
        """Connect, put the consumer back to what is unacknowledged, start to read."""
        client = await self._connect(endpoint)
        floor = await _prepare_consumer(client)
        self._in_flight.connected(floor)
        self._inbox = client.new_inbox()
        await client.subscribe(self._inbox, cb=self._on_stored, pending_bytes_limit=-1)
        self._writer = asyncio.get_running_loop().create_task(self._write())
        self._wake.set()
        core = await self._connect(endpoint)
        for subject in _CORE_SUBJECTS:
            await core.subscribe(subject, cb=self._on_core)
        await core.flush(_CONNECT_LIMIT_S)

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
            # The library's callback stays away when the closing of a socket fails.
            if not all(client.is_connected for client in self._clients):
                self._end(self._last_error)

    async def close(self) -> None:
        """Send what is waiting, if that is still possible, and close; never raises."""
        if self._writer is not None:
            self._writer.cancel()
        if self._stopped and self._clients and self._clients[0].is_connected:
            await _attempt(self._send_last())
        for client in self._clients:
            await _attempt(client.close())
        self._end("closed")

    async def _send_last(self) -> None:
        await self._send_acks()
        await self._clients[0].flush(_CONNECT_LIMIT_S)

    def acknowledge(self, sequence: str) -> None:
        """Tell the broker, with the next write, that this message is done."""
        reply = self._in_flight.settle(sequence)
        if reply is not None:
            self._acks.append((reply, b""))
            self._wake.set()

    def put_back(self, reply: str, delay_s: float) -> None:
        """Tell the broker, with the next write, to deliver this message again later."""
        delay_ns = int(delay_s * 1e9)
        self._acks.append((reply, b'-NAK {"delay": %d}' % delay_ns))
        self._wake.set()

    def publish(self, subject: str, payload: bytes) -> None:
        """Send a message with the next write, if there is room."""
        if len(self._messages) < UNACKNOWLEDGED_HIGH:
            self._messages.append((subject, payload))
            self._wake.set()

    async def _connect(self, endpoint: Endpoint) -> Client:
        client = Client()
        self._clients.append(client)  # first: a failed attempt leaves a socket to close
        await client.connect(
            endpoint.url,
            user=endpoint.user,
            password=endpoint.password,
            name="fieldbrook mqtt gateway",
            allow_reconnect=False,  # a new session must reset the consumer; see `_run`
            max_reconnect_attempts=1,  # it counts the first connection's attempts too
            reconnect_time_wait=0,
            connect_timeout=_CONNECT_LIMIT_S,
            ping_interval=_PING_S,
            max_outstanding_pings=2,
            error_cb=self._on_error,
            closed_cb=self._on_closed,
        )
        return client

    async def _on_error(self, error: Exception) -> None:
        self._last_error = str(error) or type(error).__name__
        log.debug("embedded broker: %s", self._last_error)
        if isinstance(error, (OSError, nats.errors.UnexpectedEOF)):
            self._end(self._last_error)

    async def _on_closed(self) -> None:
        self._end(self._last_error)

    def _end(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    # Stored messages.

    async def _on_stored(self, message: Msg) -> None:
        if self.lost.done():
            return  # it comes again
        if not message.reply:
            self._on_status(message)
            return
        self._requested -= 1
        sequence = sequence_of(message.reply)
        if self._in_flight.arrived(sequence, message.reply):
            topic = topic_of(message.subject.removeprefix(_SUBJECT_PREFIX))
            if not self._hand_over(topic, message.data, sequence):
                self.acknowledge(sequence)
        elif self._in_flight.is_done(sequence):
            self.acknowledge(sequence)
        self._wake.set()

    def _on_status(self, message: Msg) -> None:
        """A request for messages ended before it was filled, or cannot be served."""
        headers = message.headers or {}
        status = headers.get(_STATUS_HEADER, "")
        left = headers.get(_PENDING_HEADER)
        if status in (_REQUEST_TIMEOUT_STATUS, _REQUEST_ENDED_STATUS) and left is not None:
            self._requested -= int(left)
            self._wake.set()
        elif status != "100":  # 100: an idle heartbeat
            self._end(f"the message request failed with status {status}")

    async def _write(self) -> None:
        """Acknowledgements and requests, in one write for each turn of the loop."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._send_acks()
                await self._request()
            except (OSError, nats.errors.Error) as error:
                self._end(str(error) or type(error).__name__)
                return

    async def _send_acks(self) -> None:
        acks, self._acks = self._acks, []
        for reply, word in acks:
            await self._clients[0].publish(reply, word)
        messages, self._messages = self._messages, []
        for subject, payload in messages:
            await self._clients[0].publish(subject, payload)

    async def _request(self) -> None:
        """Ask for as many messages as there is room for, in large steps."""
        held = self._in_flight.stored + self._requested
        if held > UNACKNOWLEDGED_LOW or self._in_flight.stored_bytes > UNACKNOWLEDGED_LOW_BYTES:
            return
        wanted = UNACKNOWLEDGED_HIGH - held
        self._requested += wanted
        request = {
            "batch": wanted,
            "max_bytes": UNACKNOWLEDGED_HIGH_BYTES,
            "expires": _PULL_LIFETIME_NS,
        }
        await self._clients[0].publish(_NEXT, json.dumps(request).encode(), reply=self._inbox)

    # Messages that are not stored.

    async def _on_core(self, message: Msg) -> None:
        headers = message.headers
        if self.lost.done():
            return
        if headers is not None and headers.get(_QOS_HEADER, "0") != "0":
            return  # the copy of a stored one
        if not self._in_flight.has_room_for_unstored:
            if not self._dropped:
                log.warning("too many QoS 0 messages: dropping what has no room")
            self._dropped += 1
            return
        if self._dropped:
            log.warning("%d QoS 0 messages were dropped", self._dropped)
            self._dropped = 0
        self._hand_over(topic_of(message.subject), message.data, "")


async def _attempt(work: Coroutine[None, None, None]) -> None:
    """Do this if it can be done: the connection that it is for is given up anyway."""
    try:
        await asyncio.wait_for(work, _STOP_LIMIT_S)
    except (OSError, TimeoutError, nats.errors.Error, RuntimeError, AssertionError) as error:
        log.debug("closing a connection to the embedded broker: %r", error)


async def _prepare_consumer(client: Client) -> int:
    """Have the stream and the consumer, and deliver what is unacknowledged first.

    The consumer has no subject filter: with one, a consumer that lags behind costs the
    server a search for each message and gets a sixth of the messages per second.

    Returns:
        The sequence up to which everything is acknowledged.
    """
    stream = client.jetstream(timeout=_CONNECT_LIMIT_S)
    try:
        await stream.stream_info(STREAM)
    except NotFoundError:
        # As the server itself makes it when the first device connects.
        await stream.add_stream(
            api.StreamConfig(
                name=STREAM,
                subjects=[_SUBJECT_PREFIX + ">"],
                retention=api.RetentionPolicy.INTEREST,
                storage=api.StorageType.FILE,
                num_replicas=1,
            )
        )
    try:
        await stream.consumer_info(STREAM, CONSUMER)
    except NotFoundError:
        await stream.add_consumer(
            STREAM,
            api.ConsumerConfig(
                durable_name=CONSUMER,
                ack_policy=api.AckPolicy.EXPLICIT,
                ack_wait=_ACK_WAIT_S,
                max_ack_pending=_PENDING_LIMIT,
                deliver_policy=api.DeliverPolicy.ALL,
            ),
        )
    reset = await stream.reset_consumer(STREAM, CONSUMER)
    return reset.reset_seq - 1


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
