"""A server of frames, over real sockets: one client does not affect the others."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fieldbrook.actors import frame_server
from fieldbrook.actors.frame_server import FrameServer, Request
from fieldbrook.actors.wire import FrameReader, frame, pack, unpack
from tests.support.tools import LIMIT_S


class Served:
    """A FrameServer that answers each frame with its own value, in a thread."""

    def __init__(self, path: Path) -> None:
        self.rounds: list[int] = []
        self.server = FrameServer(path, self._echo, tick_s=0.05)
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()

    def _echo(self, requests: list[Request]) -> None:
        self.rounds.append(len(requests))
        for connection, data in requests:
            connection.answer(unpack(data))


def ask(connection: socket.socket, value: object) -> object:
    connection.sendall(frame(pack(value)))
    reader = FrameReader()
    while True:
        frames = reader.feed(connection.recv(65536))
        if frames:
            return unpack(frames[0])


def test_a_server_answers_several_connections_and_stops(tmp_path: Path) -> None:
    served = Served(tmp_path / "s")
    connections = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for number, connection in enumerate(connections):
        connection.connect(str(tmp_path / "s"))
        assert ask(connection, [number]) == (number,)
    served.server.stop()
    served.thread.join(LIMIT_S)
    assert not served.thread.is_alive()
    assert connections[0].recv(1) == b""
    assert not (tmp_path / "s").exists()
    for connection in connections:
        connection.close()


def test_a_stream_that_is_not_ours_costs_only_its_own_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(tmp_path / "s")
    bad, good = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    for connection in (bad, good):
        connection.connect(str(tmp_path / "s"))
    bad.sendall(b"\xff" * 64)
    assert bad.recv(1) == b""
    assert ask(good, [1]) == (1,)
    served.server.stop()
    served.thread.join(LIMIT_S)
    bad.close()
    good.close()
    assert "a connection was closed: a frame of" in caplog.text


def test_the_socket_is_for_the_nodes_user_alone(tmp_path: Path) -> None:
    served = Served(tmp_path / "s")
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600
    served.server.stop()
    served.thread.join(LIMIT_S)


def test_without_a_free_descriptor_connections_go_on_and_new_ones_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(tmp_path / "s")
    known, late = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    late.settimeout(LIMIT_S)
    known.connect(str(tmp_path / "s"))
    assert ask(known, [1]) == (1,)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path("/dev/null").open() as lowest:
        free = lowest.fileno()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        late.connect(str(tmp_path / "s"))
        while "cannot accept" not in caplog.text:
            assert ask(known, [2]) == (2,)
        assert ask(known, [3]) == (3,)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert ask(late, [4]) == (4,)
    served.server.stop()
    served.thread.join(LIMIT_S)
    for connection in (known, late):
        connection.close()
    assert len(caplog.records) == 1


LARGE = bytes(1 << 20)  # more than the buffers of a socket take


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "s")
    yield made
    made.server.stop()
    made.thread.join(LIMIT_S)


def connected(served: Served) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(LIMIT_S)
    connection.connect(str(served.server._path))
    return connection


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except ConnectionResetError:
        return b""  # the server has closed it with unread requests; there are no more answers


def answers_of(connection: socket.socket) -> list[object]:
    """Return all answers until the server closes the connection."""
    reader, found = FrameReader(), list[object]()
    while data := _received(connection):
        found += map(unpack, reader.feed(data))
    return found


def test_a_client_that_does_not_read_holds_up_no_other_and_gets_its_answers_later(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_server, "OUTPUT_S", 1e9)  # no limit of time
    with connected(served) as mute, connected(served) as good:
        for number in range(8):
            mute.sendall(frame(pack([number, LARGE])))
        for number in range(50):
            assert ask(good, [number]) == (number,)
        reader, found = FrameReader(), list[object]()
        while len(found) < 8:
            found += map(unpack, reader.feed(mute.recv(1 << 16)))
        assert found == [(number, LARGE) for number in range(8)]


def test_a_client_that_leaves_too_much_unread_is_disconnected(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(frame_server, "OUTPUT_S", 1e9)
    monkeypatch.setattr(frame_server, "OUTPUT_BYTES", 3 * len(LARGE))
    with connected(served) as mute, connected(served) as good:
        with suppress(BrokenPipeError):  # it is disconnected already
            for number in range(8):
                mute.sendall(frame(pack([number, LARGE])))
        while "bytes unread" not in caplog.text:
            assert ask(good, [1]) == (1,)
        assert len(answers_of(mute)) < 8


def test_a_client_that_reads_nothing_for_long_is_disconnected(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(frame_server, "OUTPUT_S", 0.2)
    with connected(served) as mute, connected(served) as good:
        mute.sendall(frame(pack([1, LARGE])))
        while "read nothing" not in caplog.text:
            assert ask(good, [1]) == (1,)
        assert answers_of(mute) == []


def test_of_many_clients_that_do_not_read_the_worst_are_disconnected(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(frame_server, "OUTPUT_S", 1e9)
    monkeypatch.setattr(frame_server, "_ALL_OUTPUT_BYTES", 4 * len(LARGE))
    monkeypatch.setattr(frame_server, "_LAST_OUTPUT_S", LIMIT_S)
    mute = [connected(served) for _ in range(3)]
    for connection, size in zip(mute, (1, 2, 3), strict=True):
        connection.sendall(frame(pack([size, bytes(size * len(LARGE))])))
    while "too much unread" not in caplog.text:
        with connected(served) as good:
            assert ask(good, [1]) == (1,)
    assert answers_of(mute[2]) == []
    served.server.stop()
    assert [len(answers_of(connection)) for connection in mute[:2]] == [1, 1]
    for connection in mute:
        connection.close()
