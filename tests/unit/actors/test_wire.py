"""Frames of the data plane, over real sockets."""

import resource
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.actors.wire import FrameReader, FrameServer, Request, frame, pack, unpack
from tests.support.tools import LIMIT_S


@given(st.lists(st.binary(max_size=300)), st.lists(st.integers(1, 64), min_size=1))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    bodies: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(frame(body) for body in bodies)
    reader, found, at, turn = FrameReader(), [], 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        found += reader.feed(stream[at : at + step])
        at, turn = at + step, turn + 1
    assert found == bodies


def test_a_length_that_no_frame_of_ours_has_ends_the_stream() -> None:
    with pytest.raises(ValueError, match="frame of"):
        FrameReader().feed(b"\xff\xff\xff\xffGET ")


def test_values_survive_packing_and_sequences_come_back_as_tuples() -> None:
    assert unpack(pack([["T", 1, "id", b"\x00\xff", 2], []])) == (
        ("T", 1, "id", b"\x00\xff", 2),
        (),
    )


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
    assert "connection dropped: frame of" in caplog.text


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
