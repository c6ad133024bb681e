"""A node that uses no functions that only Linux has, like on other systems."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fieldbrook.system.kernel import PORTABLE_VARIABLE
from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, alive, message, until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    environment = {**os.environ, PORTABLE_VARIABLE: "1"}
    running = RunningNode(tmp_path / "n", "--http-gateways", "2", environment=environment)
    try:
        running.log_in()
        yield running
    finally:
        running.stop()


def counting(node: RunningNode) -> tuple[str, object]:
    """Deploy an applet that counts its events; return its id and a message for it."""
    node.create_project("room")
    applet = node.deploy("room", TALLY)
    return applet["appletID"], message(node.add_publisher("room", "d"), b"1")


def pid_of(node: RunningNode, part: str) -> int:
    parts = node.call("GET", "/health").json["parts"]
    (pid,) = (row["pid"] for row in parts if row["part"] == part)
    return int(pid)


def test_it_serves_events_and_leaves_no_process_behind(node: RunningNode) -> None:
    applet, sent = counting(node)
    for _ in range(20):
        assert node.send("room", sent).status == 201
    assert node.count("room", applet) == 20
    pids = node.processes()
    node.stop()
    assert not any(alive(pid) for pid in pids)
    assert "killed" not in node.log
    node.start()
    assert node.send("room", sent).status == 201
    assert node.count("room", applet) == 21


@pytest.mark.thorough
@pytest.mark.parametrize("victim", ["fb-root", "fb-admin", "worker", "up"])
def test_what_a_kill_leaves_ends_before_it_is_started_again(node: RunningNode, victim: str) -> None:
    applet, sent = counting(node)
    assert node.send("room", sent).status == 201
    before = node.processes()
    if victim == "up":
        node.process.kill()
        node.process.wait()
        until(lambda: not any(map(alive, before)), "all processes have ended")
        node.start()
    else:
        (main,) = children(before[0], before)
        (core,) = children(main, before)
        (admin,) = children(core, before)
        root = next(pid for pid in children(admin, before) if children(pid, before))
        pids = {"fb-admin": admin, "fb-root": root, "worker": children(root, before)[1]}
        os.kill(pids[victim], signal.SIGKILL)
        until(lambda: not alive(pids[victim]), "it has ended")
        if victim != "worker":
            old = set(before) - {before[0], main}
            until(lambda: new_ones(node, main, before), "new processes have begun")
            assert not any(map(alive, old)), "the new processes began when the old ones had ended"
    until(lambda: node.send("room", sent).status == 201, "events are taken again")
    assert node.count("room", applet) == 2


def new_ones(node: RunningNode, main: int, before: list[int]) -> list[int]:
    """Return the processes below a new core. Other new children of the main process are `ps`."""
    now = node.processes()
    return [
        below for core in children(main, now) for below in children(core, now) if core not in before
    ]


def children(pid: int, among: list[int]) -> list[int]:
    """Return the processes of a list whose parent is `pid`, in the order of their start."""
    found = []
    for one in among:
        with suppress(OSError):  # it has ended
            status = Path(f"/proc/{one}/stat").read_text()
            if int(status.rpartition(")")[2].split()[1]) == pid:
                found.append(one)
    return sorted(found)
