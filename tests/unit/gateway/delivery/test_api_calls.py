"""Calls of applets to other hosts: allowed destinations, on real connections."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.actors.wire import WireEntry, WireEvent
from fieldbrook.gateway.delivery.api_calls import ApiCaller
from fieldbrook.gateway.links.pending_event import Settle
from tests.support.tls import key_changes, make_files

Write = Callable[[bytes], bytes]
"""Encrypts data; returns the records."""


class Hook(BaseHTTPRequestHandler):
    """Records each request; /away redirects to /inner."""

    seen: list[str]

    def do_GET(self) -> None:
        self.seen.append(self.path)
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("Location", "/inner")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"inner")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[tuple[int, list[str]]]:
    class Noting(Hook):
        seen: list[str] = []  # noqa: RUF012 - of this server alone

    server = ThreadingHTTPServer(("127.0.0.1", 0), Noting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port, Noting.seen
    server.shutdown()
    server.server_close()


def call(
    url: str, hosts: Sequence[str], method: str = "GET", header: dict[str, list[str]] | None = None
) -> dict[str, Any]:
    """Make a call; return the content of the event with its response."""
    sent = {"Eventtype": ["R"], **(header or {})}
    request = {"Method": method, "Url": url, "Header": sent, "Body": ""}
    events: list[WireEvent] = []

    def submit(_project: int, event: WireEvent, settle: Settle) -> None:
        events.append(event)
        settle(())

    async def once() -> None:
        caller = ApiCaller(submit, hosts)
        await caller(1, (1, "api", "R", json.dumps(request).encode(), "e"))

    asyncio.run(once())
    ((event_type, _, event_id, body, _, _, _),) = events
    assert (event_type, event_id) == ("R", "e#api1")
    told: dict[str, Any] = json.loads(body)
    return told


def reason(told: dict[str, Any]) -> str:
    return base64.b64decode(told["Body"]).decode()


def test_a_host_that_is_named_is_called_although_it_is_private(
    hook: tuple[int, list[str]],
) -> None:
    port, seen = hook
    told = call(f"http://127.0.0.1:{port}/inner", ["127.0.0.1"])
    assert (told["StatusCode"], reason(told), seen) == (200, "inner", ["/inner"])


@pytest.mark.parametrize(
    ("host", "hosts"),
    [
        ("127.0.0.1", ["*.0.0.1"]),  # allowed by its domain, but not named
        ("127.0.0.1", []),
        ("127.0.0.1", ["example.org"]),
        ("localhost", ["127.0.0.1"]),
        ("127.1", ["*.1"]),
        ("0x7f.0.0.1", ["*.0.0.1"]),
        ("2130706433", ["example.org"]),
        ("0", ["example.org"]),
        ("[::ffff:127.0.0.1]", ["example.org"]),
        ("example.org@127.0.0.1", ["example.org"]),
    ],
)
def test_what_is_not_named_reaches_nothing_of_the_inside(
    hook: tuple[int, list[str]], host: str, hosts: list[str]
) -> None:
    port, seen = hook
    told = call(f"http://{host}:{port}/inner", hosts)
    assert (told["StatusCode"], seen) == (502, [])


def test_a_redirection_is_told_and_not_followed(hook: tuple[int, list[str]]) -> None:
    port, seen = hook
    told = call(f"http://127.0.0.1:{port}/away", ["127.0.0.1"])
    assert (told["StatusCode"], told["Header"]["Location"]) == (302, ["/inner"])
    assert seen == ["/away"]


class Waiting(BaseHTTPRequestHandler):
    """Answers /slow when it is released, and other paths at once."""

    ends: threading.Event
    slow: threading.Semaphore

    def do_GET(self) -> None:
        if self.path == "/slow":
            self.slow.release()
            self.ends.wait()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def waiting() -> Iterator[tuple[int, type[Waiting]]]:
    class Own(Waiting):
        ends, slow = threading.Event(), threading.Semaphore(0)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port, Own
    Own.ends.set()
    server.shutdown()
    server.server_close()


def test_an_account_with_a_slow_service_leaves_calls_to_others(
    waiting: tuple[int, type[Waiting]],
) -> None:
    port, served = waiting
    answered: list[int] = []

    def submit(project_id: int, _event: WireEvent, settle: Settle) -> None:
        answered.append(project_id)
        settle(())

    def entry(number: int, path: str) -> WireEntry:
        url = f"http://127.0.0.1:{port}{path}"
        request = {"Method": "GET", "Url": url, "Header": {"Eventtype": ["R"]}, "Body": ""}
        return number, "api", "R", json.dumps(request).encode(), "e"

    async def run() -> None:
        caller = ApiCaller(submit, ["127.0.0.1"], account_of=lambda project_id: project_id // 10)
        # Two projects of one account, each with more calls than are allowed at the same time.
        slow = [asyncio.create_task(caller(n % 2, entry(n, "/slow"))) for n in range(100)]
        await asyncio.to_thread(served.slow.acquire)
        await asyncio.wait_for(caller(20, entry(0, "/fast")), 10)
        assert answered == [20]
        served.ends.set()
        await asyncio.gather(*slow)
        assert len(answered) == 101

    asyncio.run(run())


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers each connection with some bytes; its port, and what it received."""
    received: list[bytes] = []

    class Answering(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            received.append(self.request.recv(1 << 16))
            with suppress(OSError):  # the caller may have read enough
                self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], received
        server.shutdown()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize(
    ("method", "path", "header"),
    [
        ("GET", "", {"Host ": ["other"]}),
        ("GET", "", {" Host": ["other"]}),
        ("POST", "", {"Transfer-Encoding ": ["chunked"]}),
        ("GET", "", {"": ["x"]}),
        ("GET", "", {"X\r\nHost: other\r\nY": ["x"]}),
        ("GET", "", {"X": ["x\r\nHost: other"]}),
        ("GET", "", {"X": ["x\0"]}),
        ("GET / HTTP/1.1\r\nHost: other\r\nX:", "", {}),
        ("G\0T", "", {}),
        ("GÉT", "", {}),
        ("GET", "\r\nHost: other", {}),
        ("GET", "\0", {}),
    ],
)
def test_a_request_that_servers_could_read_in_two_ways_is_not_sent(
    method: str, path: str, header: dict[str, list[str]]
) -> None:
    with answering(OK) as (port, received):
        told = call(f"http://127.0.0.1:{port}/{path}", ["127.0.0.1"], method, header)
    assert (told["StatusCode"], received) == (400, [])


def test_a_blank_in_a_path_does_not_end_it() -> None:
    with answering(OK) as (port, received):
        told = call(f"http://127.0.0.1:{port}/a b", ["127.0.0.1"])
    assert (told["StatusCode"], reason(told)) == (200, "ok")
    assert received[0].startswith(b"GET /a%20b HTTP/1.1\r\n")


def test_a_response_with_a_long_head_is_refused() -> None:
    fields = b"".join(b"a%d: b\r\n" % number for number in range(6_000))
    with answering(OK.replace(b"Content", fields + b"Content", 1)) as (port, _):
        told = call(f"http://127.0.0.1:{port}/", ["127.0.0.1"])
    assert told["StatusCode"] == 502
    assert "16384 bytes" in reason(told)


def test_a_compressed_response_is_passed_on_as_it_is_and_not_asked_for() -> None:
    content = gzip.compress(b"") * 50_000
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(content)
    with answering(head + content) as (port, received):
        told = call(f"http://127.0.0.1:{port}/", ["127.0.0.1"])
    assert told["Header"]["Content-Encoding"] == ["gzip"]
    assert base64.b64decode(told["Body"]) == content
    assert b"gzip" not in received[0].lower()


def answer_over_tls(
    connection: socket.socket, context: ssl.SSLContext, answer: Callable[[Write], bytes]
) -> None:
    """Answer a request over TLS with records that the caller makes."""
    received, made = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(received, made, server_side=True)

    def carry_out(step: Callable[[], object]) -> None:
        while True:
            try:
                step()
                return
            except ssl.SSLWantReadError:
                connection.sendall(made.read())
                data = connection.recv(1 << 16)
                if not data:
                    raise ConnectionResetError from None
                received.write(data)

    def write(data: bytes) -> bytes:
        tls.write(data)
        return made.read()

    with suppress(OSError), connection:
        carry_out(tls.do_handshake)
        carry_out(lambda: tls.read(1 << 16))
        connection.sendall(made.read() + answer(write))
        while connection.recv(1 << 16):
            pass


async def timed_call(
    context: ssl.SSLContext, answer: Callable[[Write], bytes]
) -> tuple[dict[str, Any], float]:
    """Call an API over TLS; return what the event says, and the processor time of the longest turn
    of the loop in seconds."""
    events: list[WireEvent] = []

    def submit(_project: int, event: WireEvent, settle: Settle) -> None:
        events.append(event)
        settle(())

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            answer_over_tls(server.accept()[0], context, answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"https://localhost:{server.getsockname()[1]}/"
        request = json.dumps({"Url": url, "Header": {"Eventtype": ["R"]}}).encode()
        calling = asyncio.create_task(
            ApiCaller(submit, ["localhost"])(1, (1, "api", "R", request, "e"))
        )
        began, longest_s = time.thread_time(), 0.0
        while not calling.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            began, longest_s = now, max(longest_s, now - began)
        await calling
        await asyncio.to_thread(thread.join)
    told: dict[str, Any] = json.loads(events[0][3])
    return told, longest_s


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """That of a server whose authority the caller trusts."""
    files = make_files(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(files.ca))
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(files.certificate, files.key)
    return made


async def test_a_server_without_a_certificate_that_the_node_trusts_gets_no_request(
    context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answered: list[bytes] = []

    def answer(write: Write) -> bytes:
        answered.append(write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
        return answered[0]

    told, _ = await timed_call(context, answer)
    assert told["StatusCode"] == 200
    answered.clear()
    monkeypatch.delenv("SSL_CERT_FILE")
    told, _ = await timed_call(context, answer)
    assert "CERTIFICATE_VERIFY_FAILED" in base64.b64decode(told["Body"]).decode()
    assert answered == []
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


async def test_other_work_goes_on_while_a_response_comes_in_the_smallest_records(
    context: ssl.SSLContext,
) -> None:
    size = 50_000

    def answer(write: Write) -> bytes:
        head = write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        return head + b"".join(write(b"x") for _ in range(size))

    told, longest_s = await timed_call(context, answer)
    assert base64.b64decode(told["Body"]) == b"x" * size
    assert longest_s < 0.3


async def test_a_server_that_only_changes_its_keys_is_left(
    context: ssl.SSLContext, tmp_path: Path
) -> None:
    log = tmp_path / "keys"
    context.keylog_filename = str(log)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0

    def answer(_write: Write) -> bytes:
        lines = [line.split() for line in log.read_text().splitlines()]
        (secret,) = [words[2] for words in lines if words[0] == "SERVER_TRAFFIC_SECRET_0"]
        return key_changes(bytes.fromhex(secret), 20_000)[0]

    told, longest_s = await timed_call(context, answer)
    assert told["StatusCode"] == 502
    assert "records without data" in reason(told)
    assert longest_s < 0.3


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_long_response_in_large_records_arrives_whole(
    context: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    context.maximum_version = version
    body = bytes(range(256)) * 4_000
    told, _ = await timed_call(
        context,
        lambda write: write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body),
    )
    assert base64.b64decode(told["Body"]) == body
