"""The short form of the hostile requests; the long one is `python -m tests.faults.hostile`."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.hostile import Run, memory_of, table
from tests.support.applets import TALLY
from tests.support.nodes import PREFIX, RunningNode, StartNode, message, parts, strategies
from tests.support.tools import LIMIT_S

_SLOW_CLIENTS = 400
_LARGE = 900_000
_PAUSE_S = 0.1
# The 64 MiB that incomplete requests share, of which an address may use half, plus buffers and the
# allocator.
_HELD_LIMIT_BYTES = 128 << 20
_CUT_OFF = 5_000
_CUT_OFF_LIMIT_BYTES = 40 << 20  # with 16 KiB for each it would be 80 MiB


def test_hostile_requests_get_no_5xx_end_no_process_and_leave_nothing_held(tmp_path: Path) -> None:
    report = Run(tmp_path, 1_500, seed=7).run()
    assert not report.problems, table(report)
    assert report.answers["201"], table(report)


@pytest.mark.thorough
def test_hostile_requests_over_tls_do_no_harm_either(tmp_path: Path) -> None:
    report = Run(tmp_path, 800, seed=8, tls=True).run()
    assert not report.problems, table(report)
    assert report.answers["201"], table(report)


@pytest.mark.thorough
def test_clients_that_go_away_within_a_body_leave_nothing_behind(start_node: StartNode) -> None:
    node = start_node()
    gateway = parts(node)["fb-http:0"]
    begun = f"POST {PREFIX}/project HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nsome".encode()

    def cut_off(times: int) -> int:
        for _ in range(times):
            with socket.create_connection(("127.0.0.1", node.http_port), LIMIT_S) as client:
                client.sendall(begun)
        assert node.call("GET", "/project").status == 200
        return memory_of(gateway)

    before = cut_off(_CUT_OFF)  # the largest amount of garbage
    assert cut_off(_CUT_OFF) - before < _CUT_OFF_LIMIT_BYTES
    assert parts(node)["fb-http:0"] == gateway


def test_slow_and_huge_clients_together_hold_little_and_keep_no_good_event_waiting(
    tmp_path: Path,
) -> None:
    node = RunningNode(tmp_path / "n")
    held: list[socket.socket] = []
    try:
        node.log_in()
        node.create_project("room")
        node.deploy("room", TALLY, strategies=strategies(START="start"))
        good = message(node.add_publisher("room", "device-1"), b"x", "START")
        assert node.send("room", good).status == 201
        gateway = parts(node)["fb-http:0"]
        before = memory_of(gateway)
        event, project = f"{PREFIX}/event/room", f"{PREFIX}/project"
        login = f"Authorization: Bearer {node.token}\r\n"
        begun = (
            f"POST {event} HTTP/1.1\r\nHost: x\r\n",
            f"GET {project} HTTP/1.1\r\nHost: x\r\n{login}X: ",
            f"POST {event} HTTP/1.1\r\nHost: x\r\nContent-Length: {_LARGE + 1}\r\n\r\n",
            f"POST {project} HTTP/1.1\r\nHost: x\r\n{login}Content-Length: {_LARGE + 1}\r\n\r\n",
        )
        answers = []
        for number in range(_SLOW_CLIENTS):
            client = socket.create_connection(("127.0.0.1", node.http_port), LIMIT_S)
            held.append(client)
            client.sendall(begun[number % 4].encode())
            with suppress(ConnectionError):
                if number % 4 > 1:
                    client.sendall(bytes(_LARGE))
        assert node.send("room", good).status == 201
        assert node.call("GET", "/project").status == 200
        body = json.dumps(good).encode()
        with socket.create_connection(("127.0.0.1", node.http_port), LIMIT_S) as client:
            client.sendall(f"POST {event} HTTP/1.1\r\nHost: x\r\n".encode())
            time.sleep(_PAUSE_S)
            client.sendall(b"Content-Length: %d\r\n\r\n" % len(body))
            time.sleep(_PAUSE_S)
            client.sendall(body)
            assert client.recv(12) == b"HTTP/1.1 201"
        for client in held:
            client.setblocking(False)
            with suppress(BlockingIOError, ConnectionError):
                answers.append(client.recv(12))
        assert answers
        # The last answer is for clients that were slow for half a minute, while others were slow,
        # too.
        assert set(answers) <= {b"HTTP/1.1 429", b"", b"HTTP/1.1 408"}
        assert memory_of(gateway) - before < _HELD_LIMIT_BYTES
        assert parts(node)["fb-http:0"] == gateway
    finally:
        for client in held:
            client.close()
        node.stop()
    assert " ERROR " not in node.log
