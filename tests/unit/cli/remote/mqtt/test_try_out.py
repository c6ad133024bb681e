"""`mqtt pub` and `mqtt sub` with a server that refuses, and a server that does not answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from fieldbrook.cli import main
from tests.support.tools import LIMIT_S

WORDS = b"not for you"
REASON_STRING = b"\x1f" + len(WORDS).to_bytes(2, "big") + WORDS
CONNACK, PUBLISH, PUBACK, SUBACK, DISCONNECT = 0x20, 0x30, 0x40, 0x90, 0xE0
ACCEPTED = bytes([CONNACK, 3, 0, 0, 0])

Answer = Callable[[int, bytes], bytes]
"""The bytes that answer a packet, given its type and body."""


def packet(kind: int, body: bytes) -> bytes:
    return bytes([kind, len(body)]) + body


def with_reason(code: int) -> bytes:
    return bytes([code, len(REASON_STRING)]) + REASON_STRING


@contextmanager
def server(answer: Answer) -> Iterator[tuple[str, ...]]:
    """Run an MQTT 5 server for one connection; give the options that select it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, answer))
        thread.start()
        yield "--host", "127.0.0.1", "--port", str(listening.getsockname()[1]), "--timeout", "10"
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def _serve(listening: socket.socket, answer: Answer) -> None:
    try:
        connection, _ = listening.accept()
    except OSError:
        return  # no client has connected
    with connection, connection.makefile("rb") as stream, suppress(ConnectionError):
        while head := stream.read(2):
            body = stream.read(head[1])
            said = answer(head[0] & 0xF0, body)
            if said == b"close":
                return
            connection.sendall(said)


def refusing_messages(kind: int, body: bytes) -> bytes:
    if kind == PUBLISH:
        size = int.from_bytes(body[:2], "big")
        return packet(PUBACK, body[2 + size : 4 + size] + with_reason(0x87))
    return ACCEPTED if kind == 0x10 else b""


def test_a_refused_message_is_told_with_its_reason_and_ends_with_code_4(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with server(refusing_messages) as where:
        assert main.run(["mqtt", "pub", "a/b", "x", *where]) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert "the node refused the message: Not authorized (0x87): not for you" in said.err


@pytest.mark.parametrize(("code", "exit_code"), [(0x86, 4), (0x97, 1)])
def test_a_refused_client_is_told_with_the_reason(
    code: int, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with server(lambda _kind, _body: packet(CONNACK, b"\0" + with_reason(code))) as where:
        assert main.run(["mqtt", "pub", "a/b", "x", *where]) == exit_code
    assert "the node refused the connection: " in capsys.readouterr().err


def test_a_refused_subscription_is_told_with_its_filter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(kind: int, body: bytes) -> bytes:
        if kind == 0x80:
            properties = bytes([len(REASON_STRING)]) + REASON_STRING
            return packet(SUBACK, body[:2] + properties + b"\x01\x87")
        return ACCEPTED if kind == 0x10 else b""

    with server(answer) as where:
        assert main.run(["mqtt", "sub", "mine", "yours", *where]) == 4
    said = capsys.readouterr().err
    assert "the node refused the subscription yours: Not authorized (0x87): not for you" in said


def test_a_connection_that_the_server_ends_is_told_with_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(kind: int, body: bytes) -> bytes:
        if kind == 0x80:
            return packet(SUBACK, body[:2] + b"\0\x01") + packet(DISCONNECT, with_reason(0x8E))
        return ACCEPTED if kind == 0x10 else b""

    with server(answer) as where:
        assert main.run(["mqtt", "sub", "a", *where]) == 1
    said = capsys.readouterr().err
    assert "the node ended the connection: Session taken over (0x8e): not for you" in said


@pytest.mark.parametrize("said", [b"close", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_server_of_another_protocol_is_unreachable(
    said: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with server(lambda _kind, _body: said) as where:
        assert main.run(["mqtt", "pub", "a/b", "x", *where, "--timeout", "1"]) == 3
    assert "is it an MQTT port" in capsys.readouterr().err


def test_messages_are_printed_with_escapes_or_as_json_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(kind: int, body: bytes) -> bytes:
        if kind == 0x80:
            text = packet(PUBLISH, b"\0\x03a/b" + b"\0" + b"\x1b[31mred")
            raw = packet(PUBLISH | 1, b"\0\x01c" + b"\x05\x02\0\0\0\x09" + b"\xff")
            return packet(SUBACK, body[:2] + b"\0\x01") + text + raw
        return ACCEPTED if kind == 0x10 else b""

    with server(answer) as where:
        assert main.run(["mqtt", "sub", "#", "--count", "2", *where]) == 0
    assert capsys.readouterr().out == "a/b  \\x1b[31mred\nc  /w==\n"
    with server(answer) as where:
        assert main.run(["mqtt", "sub", "#", "--count", "2", "--json", *where]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    first, second = map(json.loads, said.out.splitlines())
    assert (first["payload"], first["encoding"], first["retain"]) == ("\x1b[31mred", "text", False)
    assert second == {
        "topic": "c",
        "payload": "/w==",
        "encoding": "base64",
        "qos": 0,
        "retain": True,
        "properties": {"messageExpiryInterval": 9},
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("pub", "a/#", "x"),
        ("pub", "a", "x", "--property", "no sign"),
        ("pub", "a", "x", "--mqtt", "3.1.1", "--content-type", "t"),
        ("sub", "a/#/b"),
        ("sub", "a", "--session-expiry", "9"),
        ("sub", "a", "--mqtt", "3.1.1", "--no-local"),
    ],
)
def test_what_the_standard_does_not_allow_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    def accept(kind: int, body: bytes) -> bytes:
        version_5 = kind == 0x10 and body[6] == 5
        return (ACCEPTED if version_5 else bytes([CONNACK, 2, 0, 0])) if kind == 0x10 else b""

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, accept), daemon=True)
        thread.start()
        port = str(listening.getsockname()[1])
        assert main.run(["mqtt", *arguments, "--host", "127.0.0.1", "--port", port]) == 2
