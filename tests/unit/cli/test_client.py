"""The command line with servers that are not nodes, or are hostile."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.cli import client, console, main
from fieldbrook.cli.client import Client, Upload, encode_multipart, normal_server
from fieldbrook.cli.errors import (
    InvalidAnswerError,
    RefusedError,
    UnreachableError,
    WrongUsageError,
)


def test_an_address_without_a_scheme_is_http() -> None:
    assert normal_server("node:8888/") == "http://node:8888"
    assert normal_server("https://node/prefix/") == "https://node/prefix"


@given(st.text(min_size=1), st.binary())
def test_a_file_in_a_multipart_body_stays_whole_whatever_its_name_and_content(
    filename: str, content: bytes
) -> None:
    from fieldbrook.gateway.management.multipart import parse_form

    info = {"appletName": "a"}
    body, content_type = encode_multipart(info, Upload(filename, content), "m" * 32)
    form = parse_form(content_type, body)
    assert form.file == content
    assert form.info is not None
    assert json.loads(form.info) == info


def test_a_login_that_no_header_can_have_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(WrongUsageError, match="characters that no HTTP header can carry"):
        Client("http://127.0.0.1:1", "a\r\nX-Evil: 1").call("GET", ["project"])


def test_a_client_refuses_an_address_before_it_connects() -> None:
    with pytest.raises(WrongUsageError):
        Client("gopher://old")


Serve = Callable[[Callable[[socket.socket], None]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Run a server that reads one request on each connection and then calls a function."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def begin(answer: Callable[[socket.socket], None]) -> str:
            def run() -> None:
                with suppress(OSError):
                    while True:
                        connection, _ = listening.accept()
                        with connection, suppress(OSError):
                            connection.recv(65_536)
                            answer(connection)

            threading.Thread(target=run, daemon=True).start()
            return f"http://127.0.0.1:{listening.getsockname()[1]}"

        yield begin


Connect = Callable[..., Client]


@pytest.fixture
def connect(serve: Serve) -> Iterator[Connect]:
    """Make a client of such a server."""
    made: list[Client] = []

    def begin(answer: Callable[[socket.socket], None], whole_answer_s: float = 60.0) -> Client:
        made.append(Client(serve(answer), whole_answer_s=whole_answer_s))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def head(size: int | None, status: str = "200 OK") -> bytes:
    length = "" if size is None else f"Content-Length: {size}\r\n"
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{length}\r\n".encode()


def whole(body: str, status: str = "200 OK") -> Callable[[socket.socket], None]:
    data = body.encode()
    return lambda connection: connection.sendall(head(len(data), status) + data)


def endless(start: bytes, part: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(start)
        while True:
            connection.sendall(part)

    return answer


@pytest.mark.parametrize(
    ("start", "part"),
    [
        (head(None), b"x" * 65_536),
        (head(1 << 50), b"x" * 65_536),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"10000\r\n" + b"x" * 65_536 + b"\r\n",
        ),
        (head(1 << 50, "400 Bad Request"), b"x" * 65_536),
    ],
)
def test_an_answer_without_end_is_given_up_at_a_limit(
    start: bytes, part: bytes, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_CHUNK_BYTES", 1 << 16)
    node = connect(endless(start, part))
    with pytest.raises(InvalidAnswerError, match="with more than 64 MiB"):
        node.call("GET", ["project"])


@pytest.mark.parametrize(
    ("start", "part"),
    [(head(1 << 20), b"x"), (head(None), b"x"), (b"", b"HTTP/1.1 100 Continue\r\n\r\n")],
)
def test_an_answer_that_never_ends_slowly_is_given_up_in_time(
    start: bytes, part: bytes, connect: Connect
) -> None:
    going = threading.Event()

    def answer(connection: socket.socket) -> None:
        connection.sendall(start)
        while not going.wait(0.01):
            connection.sendall(part)

    node = connect(answer, whole_answer_s=0.3)
    with pytest.raises(UnreachableError, match="no whole answer within 0.3 s"):
        node.call("GET", ["project"])
    going.set()


def test_an_answer_that_is_cut_off_is_none(connect: Connect) -> None:
    node = connect(lambda connection: connection.sendall(head(100) + b"[]"))
    with pytest.raises(UnreachableError):
        node.call("GET", ["project"])


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000])
def test_an_answer_that_is_nested_too_deeply_is_text(text: str, connect: Connect) -> None:
    assert connect(whole(text)).call("GET", ["project"]) == text


def test_a_refusal_that_is_nested_too_deeply_is_told(connect: Connect) -> None:
    with pytest.raises(RefusedError):
        connect(whole("[" * 200_000, "400 Bad Request")).call("GET", ["project"])


@pytest.mark.parametrize(
    "body", ['{"fields": 5}', '{"fields": [1, {"field": 5}]}', '{"key": [], "msg": {"a": 1}}', "[]"]
)
def test_a_refusal_of_any_form_is_told(body: str, connect: Connect) -> None:
    with pytest.raises(RefusedError, match="the node refused"):
        connect(whole(body, "400 Bad Request")).call("GET", ["project"])


@pytest.mark.parametrize(
    "value", [5, "x", [1, 2], {}, None, {"data": 5}, {"data": [1]}, {"data": [{"name": {}}]}]
)
def test_an_answer_of_another_form_is_told_without_a_traceback(
    value: object, serve: Serve, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIELDBROOK_TOKEN", "t")
    server = serve(whole(json.dumps(value)))
    for command in ("project list", "project show a", "logs a", "kv list a", "tx list a", "health"):
        code = main.run(["--server", server, *command.split()])
        told = capsys.readouterr().err
        assert code in (0, 1)
        assert code == 0 or "fieldbrook: " in told, told


def test_a_hint_that_needs_an_answer_of_another_form_is_left_out(
    serve: Serve, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIELDBROOK_TOKEN", "t")
    asked: list[str] = []

    def answer(connection: socket.socket) -> None:
        asked.append("hint" if asked else "project")
        if len(asked) == 1:
            whole('{"key": "ProjectNotFound"}', "404 Not Found")(connection)
        else:
            whole('{"data": [1]}')(connection)

    assert main.run(["--server", serve(answer), "project", "show", "a"]) == 1
    assert asked == ["project", "hint"]
    text = "fieldbrook: the node refused: no reason given (404 ProjectNotFound)\n"
    assert capsys.readouterr().err == text


def test_a_hint_that_does_not_come_is_left_out(
    serve: Serve, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIELDBROOK_TOKEN", "t")
    monkeypatch.setattr(console, "_LOOK_S", 0.1)

    def answer(connection: socket.socket) -> None:
        whole('{"key": "ProjectNotFound"}', "404 Not Found")(connection)
        connection.recv(65_536)  # until the client closes the connection

    assert main.run(["--server", serve(answer), "project", "show", "a"]) == 1
    text = "fieldbrook: the node refused: no reason given (404 ProjectNotFound)\n"
    assert capsys.readouterr().err == text


def test_a_mistake_of_the_program_itself_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("mistake")

    monkeypatch.setattr(main.cli, "main", broken)
    with pytest.raises(KeyError, match="mistake"):
        main.run(["project", "list"])
