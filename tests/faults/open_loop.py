"""Devices that send at a fixed rate, answered or not (an open loop).

Each event is sent again until it is acknowledged. The record of an event (how often it was sent,
and whether it was acknowledged) takes two bytes, so that a run of hours does not fill the memory of
this process.
"""

from __future__ import annotations

import abc
import asyncio
import base64
import collections
import json
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from tests.faults.ledger import Entry, Verdict, judge
from tests.support.mqtt_bytes import remaining_length
from tests.support.nodes import PREFIX, long_id

BLOCK = 1024  # events whose counts share a value of the store
BATCH = 20
_AGAIN_S = 0.05
_MOST = 255
_IN_FLIGHT_LIMIT = 30_000  # packet ids are 16 bits
_CONNECT = b"\x00\x04MQTT\x04\x02\x00\x00"  # a clean session, no keep-alive
_NAME = struct.Struct("<II")
_TEXT = f"""
;; `start` takes the number of a device and that of its event (u32, little-endian) and counts how
;; often it saw it, in a byte of the value that {BLOCK} events of the device share.
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (global $heap (mut i32) (i32.const 16384))
  (func (export "alloc") (param $size i32) (result i32) (local $at i32)
    (local.set $at (global.get $heap))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (local.get $at))
  (func (export "start") (param $rid i32) (result i32) (local $number i32) (local $at i32)
    (if (call $get_data (local.get $rid) (i32.const 0) (i32.const 4))
      (then (return (i32.const 1))))
    (local.set $number (i32.load offset=4 (i32.load (i32.const 0))))
    (i32.store (i32.const 64) (i32.load (i32.load (i32.const 0))))
    (i32.store (i32.const 68) (i32.div_u (local.get $number) (i32.const {BLOCK})))
    (memory.fill (i32.const 8192) (i32.const 0) (i32.const {BLOCK}))
    (if (i32.eqz (call $get_db (i32.const 64) (i32.const 8) (i32.const 8) (i32.const 12)))
      (then (memory.copy (i32.const 8192) (i32.load (i32.const 8)) (i32.const {BLOCK}))))
    (local.set $at (i32.add (i32.const 8192)
      (i32.rem_u (local.get $number) (i32.const {BLOCK}))))
    (i32.store8 (local.get $at) (i32.add (i32.load8_u (local.get $at)) (i32.const 1)))
    (call $set_db (i32.const 64) (i32.const 8) (i32.const 8192) (i32.const {BLOCK}))))
"""


def counter() -> bytes:
    """The handler that counts events on the node's side, in little space."""
    return _TEXT.encode()


class Device(abc.ABC):
    """One connection, one publisher, and the record of its events; used in one event loop."""

    kind = ""

    def __init__(self, number: int, port: int, project: str, publisher: Any, rate: float) -> None:
        """`rate` in events per second."""
        self.number, self.rate = number, rate
        self._port, self._project, self._publisher = port, project, publisher
        self.named = number % 2 == 0
        self.attempts = bytearray()
        self.acknowledged = bytearray()
        self.acknowledged_count = 0
        self.latencies_s: list[float] = []
        self.refused: collections.Counter[str] = collections.Counter()
        self._again: list[int] = []
        self._due: dict[int, float] = {}  # of events without an answer
        self._transport: asyncio.Transport | None = None
        self._header = {
            "pub_id": publisher["key"],
            "token": publisher["token"],
            "event_type": "DEFAULT",
            "pub_time": int(time.time()),
        }

    @property
    def sent(self) -> int:
        return len(self.attempts)

    async def send_until(self, end: float) -> None:
        """Send new events at the rate until `end`, and then repeat unacknowledged events until all
        are acknowledged; times are those of the loop."""
        loop = asyncio.get_running_loop()
        began, step = loop.time(), self.events_at_once
        while (due := began + self.sent / self.rate) < end:
            await asyncio.sleep(max(0.0, due - loop.time()))
            await self._connected()
            self._repeat()
            first = self.sent
            self.attempts.extend(bytes(step))
            self.acknowledged.extend(bytes(step))
            self._due.update(dict.fromkeys(range(first, first + step), due))
            self._send(range(first, first + step))
        while self._due:
            await asyncio.sleep(_AGAIN_S)
            await self._connected()
            self._repeat()

    events_at_once = 1

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _connected(self) -> None:
        while self._transport is None:
            with suppress(OSError):
                await self._connect()
                return
            self.refused["no connection"] += 1
            await asyncio.sleep(_AGAIN_S)

    def _repeat(self) -> None:
        again, self._again = self._again, []
        for first in range(0, len(again), self.events_at_once):
            self._send(again[first : first + self.events_at_once])

    def _send(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.attempts[number] = min(_MOST, self.attempts[number] + 1)
        if self._transport is None:
            self._again += numbers
        else:
            self.write(numbers)

    def _event(self, number: int) -> dict[str, Any]:
        header = dict(self._header)
        if self.named:
            header["event_id"] = long_id(f"{self.number}-{number}")
        payload = base64.b64encode(_NAME.pack(self.number, number)).decode()
        return {"header": header, "payload": payload}

    def _taken(self, number: int) -> None:
        """Record that an event is acknowledged."""
        due = self._due.pop(number, None)
        if due is not None:
            self.latencies_s.append(asyncio.get_running_loop().time() - due)
            self.acknowledged[number] = 1
            self.acknowledged_count += 1

    @abc.abstractmethod
    async def _connect(self) -> None:
        """Connect and set the transport; raises OSError."""

    @abc.abstractmethod
    def write(self, numbers: Sequence[int]) -> None:
        """Send events over the current connection."""


class _HttpDevice(Device, asyncio.Protocol):
    """Requests are sent without waiting for earlier answers (pipelined)."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._unanswered: collections.deque[Sequence[int]] = collections.deque()
        self._received = b""

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, "127.0.0.1", self._port)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._received = cast(asyncio.Transport, transport), b""

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.refused["connection lost"] += 1
        while self._unanswered:
            self._again += self._unanswered.popleft()

    def write(self, numbers: Sequence[int]) -> None:
        assert self._transport is not None
        body = json.dumps(self._body(numbers)).encode()
        head = f"POST {PREFIX}/event/{self._project} HTTP/1.1\r\nHost: x\r\nContent-Length: "
        self._unanswered.append(numbers)
        self._transport.write(b"%s%d\r\n\r\n%s" % (head.encode(), len(body), body))

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            if len(self._received) < end + 4 + length:
                return
            body = self._received[end + 4 : end + 4 + length]
            self._received = self._received[end + 4 + length :]
            self._answered(self._unanswered.popleft(), int(head.split()[1]), body)

    def _answered(self, numbers: Sequence[int], status: int, body: bytes) -> None:
        good = self._good(json.loads(body), len(numbers)) if status == 201 else []
        for number, taken in zip(numbers, good or [False] * len(numbers), strict=True):
            if taken:
                self._taken(number)
            else:
                self.refused[f"http {status}"] += 1
                self._again.append(number)

    @abc.abstractmethod
    def _body(self, numbers: Sequence[int]) -> object:
        """Return the body for these events."""

    @abc.abstractmethod
    def _good(self, answer: Any, count: int) -> list[bool]:
        """Return which events were handled successfully, according to an answer 201."""


class Singles(_HttpDevice):
    kind = "single"

    def _body(self, numbers: Sequence[int]) -> object:
        return self._event(numbers[0])

    def _good(self, answer: Any, count: int) -> list[bool]:
        return [all(one["code"] == 0 for one in answer["results"])]


class Batches(_HttpDevice):
    kind = "batch"
    events_at_once = BATCH

    def _body(self, numbers: Sequence[int]) -> object:
        return {"events": [self._event(number) for number in numbers]}

    def _good(self, answer: Any, count: int) -> list[bool]:
        results = [each["wasmResults"] for each in answer]
        return [bool(each) and all(one["code"] == 0 for one in each) for each in results]


class Messages(Device, asyncio.Protocol):
    """QoS 1 over MQTT; acknowledged by the broker."""

    kind = "mqtt"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._flying: dict[int, int] = {}  # packet id: number
        self._packet = 0
        self._received = b""
        self._welcome: asyncio.Future[None] | None = None

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._welcome = loop.create_future()
        transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", self._port)
        name = f"soak-{self.number}".encode()
        packet = _CONNECT + struct.pack(">H", len(name)) + name
        transport.write(b"\x10" + remaining_length(len(packet)) + packet)
        await self._welcome
        self._transport = transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._received = b""

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.refused["connection lost"] += 1
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_exception(ConnectionResetError())
        self._again += self._flying.values()
        self._flying.clear()

    def write(self, numbers: Sequence[int]) -> None:
        assert self._transport is not None
        if len(self._flying) >= _IN_FLIGHT_LIMIT:
            self._again += numbers
            return
        topic = self._project.encode()
        for number in numbers:
            self._packet = self._packet % 65_535 + 1
            self._flying[self._packet] = number
            body = struct.pack(">H", len(topic)) + topic + struct.pack(">H", self._packet)
            body += json.dumps(self._event(number)).encode()
            self._transport.write(b"\x32" + remaining_length(len(body)) + body)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:  # CONNACK and PUBACK are four bytes
            packet, self._received = self._received[:4], self._received[4:]
            if packet[0] == 0x40:
                self._taken(self._flying.pop(int.from_bytes(packet[2:], "big")))
            elif self._welcome is not None and not self._welcome.done():
                self._welcome.set_result(None)


def name_of(payload: bytes) -> tuple[int, int]:
    """Return the device and the number of an event, from its payload."""
    device, number = _NAME.unpack(payload)
    return device, number


def compare(
    devices: Sequence[Device],
    counts: Mapping[tuple[int, int], bytes],
    parked: set[tuple[int, int]],
) -> Verdict:
    """Compare the records of both sides. `counts`: by device and block, how often the handler saw
    each event; `parked`: events in dead letters."""
    verdict = Verdict(sent=sum(device.sent for device in devices))
    known = {device.number: device for device in devices}
    for (number, block), seen in counts.items():
        verdict.committed += sum(map(bool, seen))
        sent = known[number].sent if number in known else 0
        ghosts = [n for n, count in enumerate(seen, block * BLOCK) if count and n >= sent]
        verdict.unknown += [f"{number}-{ghost}" for ghost in ghosts]
    nothing = bytes(BLOCK)
    for device in devices:
        for at in range(device.sent):
            seen = counts.get((device.number, at // BLOCK), nothing)
            entry = Entry(device.named, device.attempts[at], bool(device.acknowledged[at]))
            is_parked = (device.number, at) in parked
            judge(f"{device.number}-{at}", entry, seen[at % BLOCK], is_parked, verdict)
    return verdict
