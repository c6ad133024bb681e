"""Measures what a good device and an administrator notice of a stranger's flood over HTTP.

    python -m tests.faults.floods [--seconds N] [--connections N] [KIND ...]

A process without any rights sends requests over keep-alive connections to the port of a running
node: each connection sends DEPTH of them at once, reads all answers, and begins again. Meanwhile a
device sends one event after the other, another one opens a connection for each event, and an
administrator asks for projects. The first lines are
for comparison: without a flood, and with accepted events of another project.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.applets import TALLY
from tests.support.nodes import PREFIX, RunningNode, message, strategies

DEPTHS = (1, 16, 200)
_STARTS = b"HTTP/1.1 "


class Flood(NamedTuple):
    """The requests of one process."""

    port: int
    request: bytes
    depth: int
    connections: int
    seconds: float
    keep: bool = True


def run(flood: Flood) -> int:
    """Send a flood; return the number of answers."""
    return asyncio.run(_run(flood))


async def _run(flood: Flood) -> int:
    ends_at = time.monotonic() + flood.seconds
    return sum(await asyncio.gather(*(_send(flood, ends_at) for _ in range(flood.connections))))


async def _send(flood: Flood, ends_at: float) -> int:
    answered = 0
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout_at(asyncio.get_running_loop().time() + flood.seconds):
            while time.monotonic() < ends_at:
                reader, writer = await asyncio.open_connection("127.0.0.1", flood.port)
                while time.monotonic() < ends_at:
                    writer.write(flood.request * flood.depth)
                    waiting, tail = flood.depth, b""
                    while waiting > 0:
                        data = await reader.read(1 << 18)
                        if not data:
                            break
                        new = (tail + data).count(_STARTS)
                        tail = (tail + data)[1 - len(_STARTS) :]
                        answered, waiting = answered + new, waiting - new
                    if waiting or not flood.keep:
                        break
                writer.close()
    return answered


def requests(node: RunningNode) -> dict[str, bytes]:
    """Return the requests by their kinds; `accepted` is for comparison."""
    publisher = node.add_publisher("other", "stranger")
    event = json.dumps(message(publisher, b"x" * 40))
    wrong = message(publisher, b"x" * 40)
    wrong["header"]["token"] = "wrong"

    def of(method: str, path: str, body: str = "") -> bytes:
        url = path if path == "/liveness" or path == "/metrics" else PREFIX + path
        head = f"{method} {url} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        return (head + body).encode()

    login = json.dumps({"username": "admin", "password": "wrong"})
    return {
        "accepted": of("POST", "/event/other", event),
        "token": of("POST", "/event/other", json.dumps(wrong)),
        "project": of("POST", "/event/nosuch", event),
        "json": of("POST", "/event/other", '{"header":'),
        "batch": of("POST", "/event/other", json.dumps({"events": [wrong] * 20})),
        "long-batch": of("POST", "/event/other", json.dumps({"events": [wrong] * 5_000})),
        "liveness": of("GET", "/liveness"),
        "metrics": of("GET", "/metrics"),
        "no-login": of("GET", "/project/datalist"),
        "no-route": of("GET", "/nosuch"),
        "login": of("PUT", "/login", login),
    }


class Times:
    """Calls functions one after the other in a thread, and records how long each took."""

    def __init__(self, call: Callable[[], Any], until: float) -> None:
        self.took_ms = list[float]()
        self._call, self._until = call, until
        self._thread = threading.Thread(target=self._measure)
        self._thread.start()

    def _measure(self) -> None:
        while (began := time.monotonic()) < self._until:
            self._call()
            self.took_ms.append((time.monotonic() - began) * 1000)
            time.sleep(0.02)

    def columns(self) -> str:
        """Return median, 90th percentile and maximum, in milliseconds."""
        self._thread.join()
        took = sorted(self.took_ms)
        return " | ".join(f"{took[int((len(took) - 1) * at)]:.0f}" for at in (0.5, 0.9, 1))


def _measured(node: RunningNode, device: dict[str, Any], seconds: float) -> str:
    sending, asking = (node.connection(node.http_port) for _ in range(2))
    body, login = json.dumps(message(device)), {"Authorization": f"Bearer {node.token}"}

    def call(
        connection: http.client.HTTPConnection, method: str, path: str, *given: Any, status: int
    ) -> None:
        connection.request(method, PREFIX + path, *given)
        answer = connection.getresponse()
        assert answer.status == status, (answer.status, answer.read())
        answer.read()

    def send_anew() -> None:
        with closing(node.connection(node.http_port)) as connection:
            call(connection, "POST", "/event/room", body, status=201)

    until = time.monotonic() + seconds
    measured = [
        Times(lambda: call(sending, "POST", "/event/room", body, status=201), until),
        Times(send_anew, until),
        Times(lambda: call(asking, "GET", "/project/datalist", None, login, status=200), until),
    ]
    return " | ".join(times.columns() for times in measured)


def main(words: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.floods", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each flood")
    parser.add_argument("--connections", type=int, default=120)
    parser.add_argument("--close", dest="keep", action="store_false", help="after each batch")
    parser.add_argument("--depth", type=int, action="append", help=f"default: {DEPTHS}")
    parser.add_argument("kinds", nargs="*", help="default: all")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="fb") as folder:
        node = RunningNode(Path(folder) / "data")
        try:
            node.log_in()
            for project in ("room", "other"):
                node.create_project(project)
                node.deploy(project, TALLY, strategies=strategies(DEFAULT="start"))
            device = node.add_publisher("room", "device")
            each = ("event p50 ms", "p90", "max")
            columns = [*each, "new connection p50", *each[1:], "page p50", *each[1:]]
            print(f"| flood | at once | answers/s | {' | '.join(columns)} |")
            print("|---" * (3 + len(columns)) + "|")
            print(f"| none | | | {_measured(node, device, given.seconds)} |", flush=True)
            for kind, request in requests(node).items():
                for depth in (given.depth or DEPTHS) if kind in (given.kinds or [kind]) else ():
                    flood = Flood(
                        node.http_port,
                        request,
                        depth,
                        given.connections,
                        given.seconds + 1,
                        given.keep,
                    )
                    with multiprocessing.get_context("spawn").Pool(1) as pool:
                        answers = pool.apply_async(run, [flood])
                        time.sleep(1)
                        measured = _measured(node, device, given.seconds)
                        rate = answers.get() / flood.seconds
                    print(f"| {kind} | {depth} | {rate:.0f} | {measured} |", flush=True)
                    time.sleep(1)
        finally:
            node.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
