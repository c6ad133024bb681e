"""Ports that the main process holds for its forks."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from fieldbrook.core.errors import SettingsError
from fieldbrook.gateway.listening import sockets
from tests.support.tools import free_port

HERE = "127.0.0.1"


@pytest.fixture
def port() -> Iterator[int]:
    yield free_port()
    sockets.release()


def is_refused(port: int) -> bool:
    try:
        socket.create_connection((HERE, port), 1).close()
    except ConnectionRefusedError:
        return True
    return False


def test_clients_of_a_held_port_wait_until_a_fork_serves_them(port: int) -> None:
    sockets.hold(HERE, port, listens=True)
    with socket.create_connection((HERE, port), 1), sockets.bind(HERE, port, shared=False) as at:
        accepted, _ = at.accept()
        accepted.close()


@pytest.mark.parametrize("processes", [1, 2])
def test_clients_of_a_reserved_port_are_refused_until_a_fork_serves_them(
    port: int, processes: int
) -> None:
    sockets.hold(HERE, port, processes, listens=False)
    assert is_refused(port)
    with sockets.bind(HERE, port, shared=processes > 1, slot=processes - 1):
        assert not is_refused(port)
    assert not is_refused(port), "they wait for the next fork"


def test_a_reserved_port_that_another_program_has_meanwhile_is_told(port: int) -> None:
    sockets.hold(HERE, port, listens=False)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((HERE, port))
        other.listen()
        with pytest.raises(SettingsError, match=f"port {port} on {HERE}: "):
            sockets.bind(HERE, port, shared=False)


def test_a_fork_that_refuses_leaves_no_client_in_the_queue_of_the_held_socket(port: int) -> None:
    sockets.hold(HERE, port, listens=True)
    with sockets.bind(HERE, port, shared=False) as at:
        sockets.refuse(at)
        assert is_refused(port)
    assert is_refused(port)


def test_a_released_port_can_be_held_again(port: int) -> None:
    sockets.hold(HERE, port, listens=True)
    sockets.release()
    assert is_refused(port)
    sockets.hold(HERE, port, listens=False)
    with sockets.bind(HERE, port, shared=False):
        assert not is_refused(port)
