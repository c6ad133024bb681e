"""How much paho reads from a socket, and when the event loop gets a turn."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.gateway.mqtt.buffered_socket import BufferedSocket
from tests.support.tls import make_files

_FILL = 64 << 10


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def taken(buffer: BufferedSocket, size: int) -> bytes:
    """Read everything in the buffer, in parts of at most `size`."""
    parts = []
    while True:
        try:
            parts.append(buffer.recv(size))
        except BlockingIOError:
            return b"".join(parts)


def test_only_what_was_filled_is_read_although_more_has_arrived(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    sent = bytes(range(256)) * 400
    theirs.sendall(sent)
    buffer = BufferedSocket(ours)
    assert taken(buffer, 7) == b""
    assert buffer.fill() is False
    assert buffer.pending() == _FILL
    assert taken(buffer, 7) == sent[:_FILL]
    buffer.fill()
    assert taken(buffer, 100_000) == sent[_FILL:]
    buffer.fill()
    assert taken(buffer, 7) == b""


def test_the_end_of_the_connection_is_read_after_its_last_bytes(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.sendall(b"last")
    theirs.close()
    buffer = BufferedSocket(ours)
    buffer.fill()
    assert taken(buffer, 3) == b"last"
    buffer.fill()
    assert buffer.recv(1) == b""


def test_records_inside_the_tls_layer_are_announced(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    ours.setblocking(True)
    files = make_files(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    client = ssl.create_default_context(cafile=files.ca)
    wrapped: list[ssl.SSLSocket] = []
    accepting = threading.Thread(
        target=lambda: wrapped.append(server.wrap_socket(theirs, server_side=True))
    )
    accepting.start()
    mine = client.wrap_socket(ours, server_hostname="localhost")
    accepting.join()
    with mine, wrapped[0]:
        wrapped[0].sendall(b"x" * 10_000)
        mine.recv(1)  # the TLS layer has the rest of the record
        buffer = BufferedSocket(mine)
        mine.setblocking(False)
        assert mine.pending() == 9_999
        hidden, received = True, 0
        while hidden:
            hidden = buffer.fill()
            received += len(taken(buffer, 1_000))
        assert received == 9_999
