"""What is measured and what is sent to it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchmarkError
from tests.support.nodes import PREFIX, message

PAYLOAD = bytes(range(100))
PROJECT = "load"
_STOP_S = 5.0


@dataclass(frozen=True)
class Server:
    """Something that answers events over HTTP.

    `roots` are the processes whose trees it is made of; `works` is false for one that
    answers without doing the work.
    """

    name: str
    port: int
    roots: tuple[int, ...]
    works: bool = True


@dataclass(frozen=True)
class Device:
    """A publisher: where it sends, as whom."""

    project: str
    key: str
    token: str

    def message(self, handler: str = "sum", payload: bytes = PAYLOAD) -> dict[str, Any]:
        """An event of this device that goes to that handler of the applet."""
        publisher = {"key": self.key, "token": self.token}
        return message(publisher, payload, handler.upper())


def event_path(project: str) -> str:
    """Where events of a project are posted."""
    return f"{PREFIX}/event/{project}"


def post(port: int, path: str, body: str) -> tuple[int, bytes]:
    """Send one request; returns the status and the body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", path, body, {"Content-Type": "text/plain"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def answers_201(port: int, device: Device) -> bool:
    """Whether a server is there and takes an event."""
    try:
        status, _ = post(port, event_path(device.project), json.dumps(device.message()))
    except (OSError, http.client.HTTPException):
        return False
    return status == 201


def check(server: Server, device: Device, handler: str = "sum") -> None:
    """A good event must be answered 201 and with one good result, and one with a broken
    token 401.

    Raises:
        BenchmarkError: it is not, so the server does other work than the node.
    """
    good, broken = device.message(handler), device.message(handler)
    broken["header"]["token"] += "x"
    path = event_path(device.project)
    for event, expected in ((good, 201), (broken, 401)) if server.works else ((good, 201),):
        status, body = post(server.port, path, json.dumps(event))
        if status != expected:
            raise BenchmarkError(f"{server.name} answered {status}, not {expected}")
        codes = [result["code"] for result in json.loads(body)["results"]] if status == 201 else []
        if server.works and status == 201 and codes != [0]:
            raise BenchmarkError(f"{server.name}: the handler {handler} returned {codes}, not 0")


def write_requests(path: Path, requests: Sequence[tuple[str, object]]) -> Path:
    """Write what `httpload` sends: pairs of a path and a body."""
    path.write_text("".join(f"{where}\t{json.dumps(body)}\n" for where, body in requests))
    return path


def event_requests(path: Path, devices: Sequence[Device], handler: str = "sum") -> Path:
    """One event of each device, in the order given."""
    events = [(event_path(device.project), device.message(handler)) for device in devices]
    return write_requests(path, events)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process this run started."""
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def spawned(command: Sequence[object], log: Path, **environment: str) -> Iterator[int]:
    """A process for the time of the block; its output goes to a file."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
        )
    try:
        yield process.pid
    finally:
        stop(process)
