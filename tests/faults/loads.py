"""Devices that send numbered events until they are stopped, each event until it is acknowledged."""

from __future__ import annotations

import abc
import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fieldbrook.gateway.mqtt.protocol.packets import PubAck, PubComp, Publish, PubRec, PubRel
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from tests.faults.ledger import Ledger
from tests.support.brokers import Device
from tests.support.mqtt_client import MqttClient, new_id
from tests.support.nodes import PREFIX, message, named

_RETRY_S = 0.02
_ANSWER_S = 25.0  # longer than a gateway waits for a project
_BATCH = 20
_RECONNECT_AFTER = 200


@dataclass(slots=True)
class Target:
    """The destination and the publisher of events; `publisher` is replaced when its token is
    replaced."""

    port: int
    project: str
    publisher: Any


class Load(threading.Thread, abc.ABC):
    """A device with a connection of its own. It repeats each event until it is acknowledged, and
    only then sends a new one."""

    kind = ""

    def __init__(self, ledger: Ledger, target: Target, number: int, pause_s: float) -> None:
        super().__init__(name=f"{self.kind}{number}", daemon=True)
        self.ledger, self.target = ledger, target
        self._pause_s = pause_s
        self.named = number % 2 == 0
        self._running = threading.Event()
        self._running.set()
        self._resting = threading.Event()
        self._ended = False
        self.failure = ""

    def run(self) -> None:
        try:
            self._send_all()
        except Exception as error:  # noqa: BLE001 - told by whoever joins the thread
            self.failure = f"{self.name}: {error!r}"
        finally:
            self.disconnect()

    def _send_all(self) -> None:
        numbers = self._numbers()
        while True:
            if not self._running.is_set():
                self._resting.set()
                self._running.wait()
                self._resting.clear()
            if self._ended:
                return
            self.send(numbers)
            time.sleep(self._pause_s)

    def _numbers(self) -> Iterator[str]:
        number = 0
        while True:
            yield f"{self.name}-{number:08}"
            number += 1

    def rest(self, limit_s: float = 60.0) -> bool:
        """Stop sending when everything is acknowledged; return whether that was in time."""
        self._running.clear()
        return self._resting.wait(limit_s)

    def go_on(self) -> None:
        self._running.set()

    def end(self) -> None:
        """End a load that has stopped sending."""
        self._ended = True
        self._running.set()
        self.join(10)

    @abc.abstractmethod
    def send(self, numbers: Iterator[str]) -> None:
        """Send the next events until each is acknowledged."""

    @abc.abstractmethod
    def disconnect(self) -> None:
        """Close the connection, if there is one."""

    def event(self, name: str) -> dict[str, Any]:
        made = message(self.target.publisher, name.encode())
        if self.named:
            named(made, name)
        return made


class _HttpLoad(Load):
    _connection: http.client.HTTPConnection | None = None

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def post(self, body: object) -> tuple[int, Any]:
        """Return the status and the JSON of the answer; the status is 0 without an answer."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                "127.0.0.1", self.target.port, timeout=_ANSWER_S
            )
        path = f"{PREFIX}/event/{self.target.project}"
        try:
            self._connection.request("POST", path, json.dumps(body).encode())
            reply = self._connection.getresponse()
            return reply.status, json.loads(reply.read())
        except (OSError, http.client.HTTPException) as error:
            self.ledger.refuse(f"http {type(error).__name__}")
            self.disconnect()
            return 0, None


class HttpSingles(_HttpLoad):
    """One event per request."""

    kind = "single"

    def send(self, numbers: Iterator[str]) -> None:
        name = next(numbers)
        while True:
            began = self.ledger.sending(name, named=self.named)
            status, answer = self.post(self.event(name))
            if status == 201 and all(one["code"] == 0 for one in answer["results"]):
                self.ledger.acknowledged(self.kind, name, began)
                return
            if status:
                self.ledger.refuse(f"http {status}")
            time.sleep(_RETRY_S)


class HttpBatches(_HttpLoad):
    """Twenty events per request; refused ones are sent again."""

    kind = "batch"

    def send(self, numbers: Iterator[str]) -> None:
        left = [next(numbers) for _ in range(_BATCH)]
        while left:
            began = [self.ledger.sending(name, named=self.named) for name in left]
            status, answers = self.post({"events": [self.event(name) for name in left]})
            if status != 201:
                if status:
                    self.ledger.refuse(f"http batch {status}")
                time.sleep(_RETRY_S)
                continue
            assert len(answers) == len(left)
            again = []
            for name, at, answer in zip(left, began, answers, strict=True):
                if answer["wasmResults"] and all(r["code"] == 0 for r in answer["wasmResults"]):
                    self.ledger.acknowledged(self.kind, name, at)
                else:
                    self.ledger.refuse("http batch item")
                    again.append(name)
            left = again
            if left:
                time.sleep(_RETRY_S)


class MqttMessages(Load):
    """QoS 1 in sessions that end with their connection; there is a new connection every 200
    messages. Unacknowledged messages are sent again as new messages."""

    kind = "mqtt"
    _device: Device | None = None
    _sent = 0

    def disconnect(self) -> None:
        if self._device is not None:
            self._device.close()
            self._device = None

    def send(self, numbers: Iterator[str]) -> None:
        name = next(numbers)
        self._sent += 1
        if self._sent % _RECONNECT_AFTER == 0:
            self.disconnect()
        while True:
            try:
                if self._device is None:
                    self._device = Device(self.target.port, self.name, limit_s=_ANSWER_S)
                began = self.ledger.sending(name, named=self.named)
                body = json.dumps(self.event(name)).encode()
                self._device.publish(self.target.project, body)
            except (OSError, AssertionError) as error:
                self.ledger.refuse(f"mqtt {type(error).__name__}")
                self.disconnect()
                time.sleep(_RETRY_S)
                continue
            self.ledger.acknowledged(self.kind, name, began)
            return


class MqttSessions(Load):
    """QoS 1 or 2 in a session that is kept after its connections end. Unacknowledged messages are
    sent again with their packet id and DUP, so that nothing may be handled twice."""

    kind = "mqtt session"
    _client: MqttClient | None = None
    _sent = 0

    def __init__(self, ledger: Ledger, target: Target, number: int, pause_s: float) -> None:
        super().__init__(ledger, target, number, pause_s)
        self.named = False
        self._qos = 1 + number % 2
        self._client_id = new_id(self.name.replace(" ", "-"))

    def disconnect(self) -> None:
        if self._client is not None:
            self._client.socket.close()
            self._client = None

    def _connected(self) -> MqttClient:
        if self._client is None:
            client = MqttClient(self.target.port, limit_s=_ANSWER_S)
            try:
                answer = client.connect(self._client_id, clean=False, expiry_s=3_600)
            except BaseException:
                client.socket.close()
                raise
            assert answer.code == ReasonCode.SUCCESS, answer
            assert answer.session_present or not self._sent, "the session is lost"
            self._client = client
        return self._client

    def send(self, numbers: Iterator[str]) -> None:
        name = next(numbers)
        packet_id = self._sent % 0xFFFF + 1
        body = json.dumps(self.event(name)).encode()
        if (self._sent + 1) % _RECONNECT_AFTER == 0:
            self.disconnect()
        repeated = released = False
        while True:
            try:
                client = self._connected()
                self._sent += not repeated
                # An event id would also prevent a second run; here the session has to prevent it.
                began = self.ledger.sending(name, named=True)
                if not released:
                    packet = Publish(
                        self.target.project, body, self._qos, dup=repeated, packet_id=packet_id
                    )
                    repeated = True
                    client.send(packet)
                    answer = client.read()
                    assert isinstance(answer, PubAck if self._qos == 1 else PubRec), answer
                    assert answer.code == ReasonCode.SUCCESS, answer
                if self._qos == 2:
                    released = True
                    client.send(PubRel(packet_id))
                    client.expect(PubComp)
            except (OSError, EOFError) as error:
                self.ledger.refuse(f"{self.kind} {type(error).__name__}")
                self.disconnect()
                time.sleep(_RETRY_S)
                continue
            self.ledger.acknowledged(self.kind, name, began)
            return
