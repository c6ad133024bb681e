"""Delivers the messages of an earlier version's broker to the node once, then removes them.

nats-server kept each QoS 1 message in the stream `$MQTT_msgs` until the node's durable consumer
had acknowledged it. The drain starts the server on the loopback, reads that consumer from its
acknowledgement floor, and acknowledges a message when its event is committed. So no message is lost
in a crash: unacknowledged messages are read again. They have the same names as before, by which the
project recognises events that it has handled. If a project accepts no messages now, its messages
are skipped until the next pass. So they keep their order, and delay no other project. They are not
kept in memory meanwhile.

Source: ADR-8, ADR-15 and ADR-60 of the NATS architecture; docs/decisions/0003-embedded-broker.md.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from fieldbrook.core.errors import NodeError, UnavailableError
from fieldbrook.gateway.channel import project_name
from fieldbrook.gateway.mqtt.old_broker import store
from fieldbrook.gateway.mqtt.old_broker.nats_wire import (
    NOT_FOUND,
    NatsConnection,
    RequestError,
    Stored,
)
from fieldbrook.gateway.mqtt.old_broker.server import Server, find_program
from fieldbrook.observability.health import OLD_BROKER, ProcessHealth

log = logging.getLogger(__name__)

Deliver = Callable[[str, bytes, str], Awaitable[bool]]
"""Handles a message. Its arguments are topic, payload and name; the name is the same at each
delivery. Returns True if the message cannot be lost any more, False if the node cannot accept it
now."""

STREAM, CONSUMER = "$MQTT_msgs", "fieldbrook"
BATCH = 500
_BATCH_BYTES = 32 << 20  # above the largest message, 16 MiB
_PREFIX = b"$MQTT.msgs."
_API = "$JS.API"
_NEXT = f"{_API}.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}"
_DROPPED = {
    "$MQTT_rmsgs": "retained messages",
    "$MQTT_sess": "sessions",
    "$MQTT_qos2in": "QoS 2 messages that were not released",
    STREAM: "messages that only devices waited for",
}
_LIMIT_S = 30.0  # time limit of one request
_SETTLE_S, _POLL_S = 5.0, 0.02
_PASS_S, _LONGEST_PASS_S = 1.0, 10.0  # between two passes that left messages
_RETRY_S, _LONGEST_RETRY_S = 1.0, 60.0  # after a failure
_PROGRESS_S = 10.0
_NO_PROGRAM = (
    "nats-server, which can read them, is not installed. Install it with: pip install "
    "'fieldbrook[old-broker]'. Or drop the messages with: fieldbrook mqtt discard-old-broker"
)


async def drain(data: Path, deliver: Deliver, health: ProcessHealth) -> None:
    """Deliver all messages that an earlier version's broker holds for the node, then remove them.

    Returns at once if there is no such broker, otherwise after its store is removed. A failure
    raises a health condition, and the delivery is tried again.
    """
    delay_s = _RETRY_S
    while store.exists(data):
        try:
            await _attempt(data, deliver, health)
        except (OSError, TimeoutError, NodeError) as error:
            reason = str(error) or type(error).__name__
        except Exception as error:
            log.exception("the messages of the old broker could not be delivered")
            reason = type(error).__name__
        else:
            continue
        health.raise_(OLD_BROKER, reason)
        await asyncio.sleep(delay_s)
        delay_s = min(2 * delay_s, _LONGEST_RETRY_S)
    health.clear(OLD_BROKER)


async def _attempt(data: Path, deliver: Deliver, health: ProcessHealth) -> None:
    """Deliver all messages and remove the store.

    Raises:
        NodeError, OSError, TimeoutError: the server cannot be used.
    """
    if not store.may_hold_messages(data):
        store.discard(data)
        log.info("the old broker held no messages; its files are removed")
        return
    program = find_program()
    if program is None:
        raise UnavailableError(what=_NO_PROGRAM)
    server, is_done = Server(data, program), False
    connection = NatsConnection(lambda reason: None, lambda: None)
    try:
        endpoint = await server.start()
        await connection.open(endpoint, "fieldbrook drain", _LIMIT_S)
        health.clear(OLD_BROKER)
        await _Drain(connection, deliver).run()
        is_done = True
    finally:
        connection.close()
        await server.stop(removing=is_done)


class _Drain:
    """Reads the stream through one connection, pass by pass, until nothing is left."""

    def __init__(self, connection: NatsConnection, deliver: Deliver) -> None:
        self._connection = connection
        self._deliver = deliver
        self._delivered = 0
        self._others = 0
        self._kept = 0  # in this pass
        self._reported = time.monotonic()

    async def run(self) -> None:
        """Deliver everything.

        Raises:
            OSError, TimeoutError: the server refuses or does not answer.
        """
        left = await self._left()
        if left:
            log.info("delivering %d messages that the old broker holds for the node", left)
        pause_s = _PASS_S
        while left:
            before = self._delivered
            await self._pass()
            left = await self._left_after_pass()
            if left:
                pause_s = _PASS_S if self._delivered > before else min(2 * pause_s, _LONGEST_PASS_S)
                await asyncio.sleep(pause_s)
        await self._report()

    async def _left(self) -> int:
        """The number of messages that the node has not acknowledged."""
        consumer = await self._ask(f"CONSUMER.INFO.{STREAM}.{CONSUMER}")
        if consumer is None:
            return 0
        return int(consumer["num_pending"]) + int(consumer["num_ack_pending"])

    async def _left_after_pass(self) -> int:
        """Return `_left` after the server has processed the acknowledgements of the pass."""
        deadline = time.monotonic() + _SETTLE_S
        while (left := await self._left()) > self._kept and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
        return left

    async def _pass(self) -> None:
        """Read all messages from the acknowledgement floor on, once."""
        self._kept = 0
        await self._ask(f"CONSUMER.RESET.{STREAM}.{CONSUMER}")
        question = {"max_bytes": _BATCH_BYTES, "no_wait": True}
        refusing: set[str] = set()
        while messages := await self._connection.pull(_NEXT, question, BATCH, _LIMIT_S):
            await self._deliver_all(messages, refusing)
            await self._connection.flush(_LIMIT_S)
            if time.monotonic() - self._reported > _PROGRESS_S:
                self._reported = time.monotonic()
                log.info("delivered %d messages of the old broker so far", self._delivered)

    async def _deliver_all(self, messages: Iterable[Stored], refusing: set[str]) -> None:
        """Deliver a batch, and acknowledge the handled messages.

        `refusing` has the projects that accept no messages in this pass.
        """
        by_project: dict[str, list[tuple[str, Stored]]] = collections.defaultdict(list)
        for message in messages:
            topic = topic_of(message.subject[len(_PREFIX) :].decode("utf-8", "surrogateescape"))
            channel, slash, rest = topic.partition("/")
            if channel.startswith("$") or (slash and not rest.startswith("push/")):
                self._others += 1
                self._acknowledge(message)
            elif (name := project_name(channel)) in refusing:
                self._kept += 1
            else:
                by_project[name].append((topic, message))
        results = await asyncio.gather(
            *(self._deliver_project(queue) for queue in by_project.values())
        )
        refusing.update(
            name for name, is_done in zip(by_project, results, strict=True) if not is_done
        )

    async def _deliver_project(self, queue: list[tuple[str, Stored]]) -> bool:
        """Deliver messages of one project; return False if the project refused one.

        They are submitted together, in order. A project that refuses one message now also refuses
        the following ones, because its queue is full or it does not run.
        """
        names = (f"mqtt-{sequence_of(message.reply.decode())}" for _, message in queue)
        results = await asyncio.gather(
            *(
                self._deliver(topic, message.body, name)
                for (topic, message), name in zip(queue, names, strict=True)
            )
        )
        for (_, message), is_done in zip(queue, results, strict=True):
            if is_done:
                self._delivered += 1
                self._acknowledge(message)
            else:
                self._kept += 1
        return all(results)

    def _acknowledge(self, message: Stored) -> None:
        self._connection.write(b"PUB %b 0\r\n\r\n" % message.reply)

    async def _report(self) -> None:
        """Log how much was delivered, and how much is dropped with the store."""
        counts = {
            what: int(info["state"]["messages"])
            for stream, what in _DROPPED.items()
            if (info := await self._ask(f"STREAM.INFO.{stream}")) is not None
        }
        dropped = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        log.info("delivered %d messages of the old broker", self._delivered)
        if self._others:
            log.info("dropped %d messages whose topic belongs to no project", self._others)
        if dropped:
            log.warning("the old broker is removed, and with it %s", dropped)

    async def _ask(self, what: str) -> dict[str, Any] | None:
        """Ask the server's API; None when the requested object does not exist."""
        try:
            return await self._connection.ask(f"{_API}.{what}", None, _LIMIT_S)
        except RequestError as error:
            if error.code != NOT_FOUND:
                raise
            return None


def sequence_of(reply: str) -> str:
    """Read the identity of a stored message from its reply subject.

    The identity is the position in the stream and the time of storage in ns. The time is needed,
    because after a power cut the server may use lost positions a second time.
    """
    # $JS.ACK.<stream>.<consumer>.<delivered>.<position>.<consumer position>.<time>.<pending>
    tokens = reply.split(".")
    return f"{tokens[5]}.{tokens[7]}"


def topic_of(subject: str) -> str:
    """The MQTT topic of a NATS subject.

    A `.` stands for `/`, `//` stands for `.`, and a single `/` marks an empty level.
    """
    if "/" not in subject:
        return subject.replace(".", "/")
    return subject.replace("//", "\0").replace("/", "").replace(".", "/").replace("\0", ".")
