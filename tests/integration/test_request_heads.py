"""Request heads of clients, attackers and users of the original, over TCP and TLS."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import applets
from tests.support.nodes import PREFIX, RunningNode, message, parts, strategies
from tests.support.tls import TlsNode
from tests.support.tools import LIMIT_S

HEAD_LIMIT = 16_384
EVENT = f"{PREFIX}/event/room"


class World:
    """A node with a project and a publisher; sends bytes to it."""

    def __init__(self, node: RunningNode) -> None:
        self.node = node
        node.log_in()
        node.create_project("room")
        node.deploy("room", applets.TALLY, "tally", strategies=strategies(START="start"))
        publisher = node.add_publisher("room", "device-1")
        self.event = json.dumps(message(publisher, b"hi", "START")).encode()

    def connect(self) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self.node.http_port), LIMIT_S)
        if not isinstance(self.node, TlsNode):
            return plain
        context = ssl.create_default_context(cafile=self.node.files.ca)
        return context.wrap_socket(plain, server_hostname="localhost")

    def exchange(self, sent: bytes, end: bytes = b"") -> bytes:
        """Return the answer up to `end`, or until the node closes the connection."""
        with self.connect() as connection:
            connection.sendall(sent)
            received = b""
            while not (end and end in received):
                more = connection.recv(65536)
                if not more:
                    break
                received += more
            return received

    def cpu_s(self) -> float:
        """Return the CPU seconds of the HTTP gateway."""
        pid = parts(self.node)["fb-http:0"]
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def post(self, target: str, host: str = "x", end: str = "\r\n") -> bytes:
        """Return the request of one event."""
        lines = (f"POST {target} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(self.event)}")
        return (end.join(lines) + 2 * end).encode() + self.event


@pytest.fixture(scope="module", params=["tcp", "tls"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp(request.param)
    made = World(TlsNode(folder) if request.param == "tls" else RunningNode(folder / "node"))
    yield made
    made.node.stop()


def head(*fields: bytes) -> bytes:
    lines = (b"POST %b HTTP/1.1" % EVENT.encode(), b"Content-Length: 0", *fields)
    return b"\r\n".join(lines) + b"\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        head(b"Host: a", b"X:" + b" " * 15_000 + b"\x01"),
        head(b"Host: a" + b" " * 15_000 + b"b"),
        head(b"Host: a", b"X:" + b" \t" * 7_500 + b"\x01"),
        head(b"Host: a", b"Authorization:" + b" " * 15_000 + b"b"),
        head(b"Host: " + b"a:" * 8_000 + b"@"),
        head(b"Host: a", *(b"a:" for _ in range(4_000)), b"\x01"),
    ],
    ids=["blanks", "host", "tabs", "authorization", "colons", "fields"],
)
@pytest.mark.thorough("tls-blanks")
def test_a_head_full_of_blanks_costs_the_gateway_next_to_nothing(world: World, sent: bytes) -> None:
    before, count = world.cpu_s(), 20
    for _ in range(count):
        answer = world.exchange(sent, b"\r\n\r\n")
        assert answer.split()[1] in (b"400", b"401", b"404"), answer
    # A pattern with backtracking would take a second for each.
    assert world.cpu_s() - before < count * 0.1


@pytest.mark.parametrize("first", [b"", b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n"])
@pytest.mark.parametrize("size", [HEAD_LIMIT + 1, 60_000, 1 << 20])
def test_a_head_above_the_limit_is_answered_431_even_when_it_arrives_whole(
    world: World, first: bytes, size: int
) -> None:
    before = world.cpu_s()
    padding = size - len(head(b"Host: a", b"X:"))
    answer = world.exchange(first + head(b"Host: a", b"X:" + b" " * padding))
    assert b"HTTP/1.1 431 " in answer, answer
    assert b"more than 16384 bytes" in answer
    assert answer.count(b"HTTP/1.1 ") == 1 + bool(first)
    assert world.cpu_s() - before < 1


def test_a_head_of_just_the_limit_is_read(world: World) -> None:
    padding = HEAD_LIMIT - len(head(b"Host: a", b"X:"))
    sent = head(b"Host: a", b"X:" + b"x" * padding)
    assert len(sent) == HEAD_LIMIT
    assert b" 400 " in world.exchange(sent, b"\r\n\r\n")  # the body is missing
    unread = sent.replace(b"POST", b"GET", 1).replace(b"X:", b"X:x", 1)
    assert b" 405 " in world.exchange(unread, b"\r\n\r\n")


@pytest.mark.parametrize("first", [b"", b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_lines_that_end_with_a_bare_line_feed_are_answered_400_at_once(
    world: World, first: bytes
) -> None:
    began = time.monotonic()
    for sent in (
        world.post(EVENT, end="\n"),
        b"GET /version HTTP/1.1\nHost: a\n\n",
        b"GET /version HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
        world.post(EVENT).replace(b"\r\nContent", b"\nContent", 1),
        world.post(EVENT).partition(b"\r\n\r\n")[0] + b"\n\n" + world.event,
    ):
        answer = world.exchange(first + sent)
        refusal = answer[answer.index(b"HTTP/1.1 400 ") :]
        assert b"bare line feed" in refusal, sent
        assert answer.count(b"HTTP/1.1 ") == 1 + bool(first)
    assert time.monotonic() - began < 20  # the time limit of an incomplete request is 30 s


def test_a_bare_line_feed_in_the_first_half_of_a_head_is_not_waited_upon(world: World) -> None:
    with world.connect() as connection:
        connection.sendall(world.post(EVENT, end="\n").partition(b"\n\n")[0])
        connection.sendall(b"\n\n")
        assert connection.recv(64).startswith(b"HTTP/1.1 400 ")


def test_a_request_line_with_a_whole_address_is_answered_as_one_with_a_path(world: World) -> None:
    for target in (
        f"http://x{EVENT}",
        f"HTTPS://127.0.0.1:8888{EVENT}?x=1",
        f"http://[::1]:1{EVENT}",
    ):
        assert world.exchange(world.post(target), b"\r\n\r\n").startswith(b"HTTP/1.1 201 "), target
    for target in ("http://x/version", "http://x/version?a=b"):
        sent = f"GET {target} HTTP/1.1\r\nHost: y\r\n\r\n".encode()
        assert world.exchange(sent, b"fieldbrook@").startswith(b"HTTP/1.1 200 ")
    sent = b"GET http://x HTTP/1.1\r\nHost: y\r\n\r\n"
    assert world.exchange(sent, b"\r\n\r\n").startswith(b"HTTP/1.1 204 ")


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("http://a@x/version", "x"),
        ("http:///version", "x"),
        ("ftp://x/version", "x"),
        ("version", "x"),
        ("http://x/version", "a b"),
        ("http://x/version", "a\r\nHost: b"),
        ("http://x/version", "a\r\nX: " + "b" * 100 + "\r\nhost: c"),
    ],
)
def test_an_address_that_names_no_host_or_a_user_is_answered_400(
    world: World, target: str, host: str
) -> None:
    sent = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    assert world.exchange(sent).startswith(b"HTTP/1.1 400 ")
    missing = f"GET {target} HTTP/1.1\r\n\r\n".encode()
    assert world.exchange(missing).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        (f"/{EVENT}", EVENT),
        ("/srv-applet-mgr//v0/event/room", EVENT),
        ("/srv-applet-mgr/v0//event/room", EVENT),
        ("/srv-applet-mgr/v0/event//room?x=A//B", f"{EVENT}?x=A//B"),
        ("//srv-applet-mgr////v0//event///room", EVENT),
        ("http://evil.example//api//w3bapp/event/room", "/api/w3bapp/event/room"),
    ],
)
def test_an_event_to_a_path_with_doubled_slashes_is_sent_to_the_clean_one(
    world: World, path: str, clean: str
) -> None:
    answer = world.exchange(world.post(path), b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 307 "), answer
    assert f"\r\nLocation: {clean}\r\n".encode() in answer
    again = world.exchange(world.post(clean), b"\r\n\r\n")
    assert again.startswith(b"HTTP/1.1 201 ")


def test_pages_and_management_have_clean_paths_too(world: World) -> None:
    for path, clean in (
        ("//version", "/version"),
        (f"/{PREFIX}/project", f"{PREFIX}/project"),
        (f"{PREFIX}//project", f"{PREFIX}/project"),
    ):
        sent = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        answer = world.exchange(sent, b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 307 "), answer
        assert f"\r\nLocation: {clean}\r\n".encode() in answer


@pytest.mark.parametrize("path", ["//evil.example", "//evil.example/version", "//\\evil.example/x"])
def test_doubled_slashes_lead_to_no_other_site(world: World, path: str) -> None:
    answer = world.exchange(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"Location" not in answer


def test_a_stated_length_of_thousands_of_digits_is_refused(world: World) -> None:
    for target in (EVENT, f"{PREFIX}/login"):
        sent = f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {'9' * 9_000}\r\n\r\n"
        for method in ("PUT", "POST"):
            answer = world.exchange(sent.replace("PUT", method, 1).encode())
            assert answer.split()[1][:1] == b"4", answer
