"""The command `simulate` against nodes: the node has exactly the events that the command
reports."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, StartNode, strategies, until
from tests.support.shell import Shell
from tests.support.tls import TlsNode
from tests.support.tools import LIMIT_S


class World:
    def __init__(self, node: RunningNode) -> None:
        self.node = node
        node.create_project("room")
        handlers = strategies(START="start", FAIL="fail", ECHO="echo")
        self.applet_id: str = node.deploy("room", TALLY, strategies=handlers)["appletID"]

    def count(self) -> int:
        return self.node.count("room", self.applet_id)

    def publishers(self) -> list[str]:
        rows = self.node.call("GET", "/publisher/room?size=-1").json
        return [row["key"] for row in (rows.get("data") or [])]


@pytest.fixture(scope="module")
def world(start_module_node: StartNode) -> World:
    return World(start_module_node())


@pytest.fixture
def shell(world: World, tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home", world.node)


def over(transport: str, node: RunningNode) -> tuple[str, ...]:
    if transport == "http":
        return ()
    return ("--mqtt", "--to", f"mqtt://127.0.0.1:{node.mqtt_port}")


@pytest.mark.parametrize("transport", ["http", "mqtt"])
def test_every_event_of_a_fleet_is_committed_and_its_publishers_are_removed(
    world: World, shell: Shell, transport: str
) -> None:
    before = world.count()
    options = ("--devices", "5", "--rate", "20", "--for", "1s", "--type", "START")
    done = shell.json("simulate", "room", *options, *over(transport, world.node))
    assert done["sent"] == done["committed"] == world.count() - before
    assert 0 < done["sent"] <= 5 * 20
    assert (done["refused"], done["unanswered"], done["failedHandlers"]) == ({}, 0, 0)
    assert 0 < done["p50Ms"] <= done["p99Ms"]
    assert world.publishers() == []


@pytest.mark.parametrize("transport", ["http", "mqtt"])
def test_payloads_are_made_of_the_template(world: World, shell: Shell, transport: str) -> None:
    template = '{"d": "{{device}}", "n": {{count}}, "t": {{random 10.0 30.0}}}'
    options = ("--devices", "1", "--rate", "5", "--for", "1s", "--type", "ECHO", "--keep")
    done = shell.json(
        "simulate", "room", *options, "--payload", template, *over(transport, world.node)
    )
    (key,) = world.publishers()
    last = json.loads(world.node.kv("room", world.applet_id, b"last"))
    assert (last["d"], last["n"]) == (key, done["sent"])
    assert 10 <= last["t"] <= 30
    shell("publisher", "delete", "room", key)


def test_refused_events_are_counted_by_reason_and_end_with_1(world: World, shell: Shell) -> None:
    options = ("--devices", "2", "--rate", "5", "--for", "1s", "--type", "NOBODY")
    for transport in ("http", "mqtt"):
        done = shell("--json", "simulate", "room", *options, *over(transport, world.node), code=1)
        shown = json.loads(done.stdout)
        assert shown["refused"] == {"StrategyNotFound": shown["sent"]}
        assert shown["committed"] == 0


def test_handlers_that_fail_are_counted(world: World, shell: Shell) -> None:
    options = ("--devices", "1", "--rate", "5", "--for", "1s", "--type", "FAIL")
    done = shell.json("simulate", "room", *options)
    assert done["failedHandlers"] == done["committed"] == done["sent"] > 0


def test_a_file_of_tokens_takes_the_place_of_a_login(world: World, tmp_path: Path) -> None:
    keys = ("meter-1", "meter-2")
    made = [world.node.add_publisher("room", key) for key in keys]
    file = tmp_path / "tokens"
    lines = [f"{each['key']} {each['token']}\n" for each in made]
    file.write_text("# the meters\n\n" + "".join(lines))
    stranger = Shell(tmp_path / "home", world.node, logged_in=False)
    before = world.count()
    options = ("--tokens", str(file), "--rate", "5", "--for", "1s", "--type", "START")
    done = stranger.json("simulate", "room", *options)
    assert done["committed"] == world.count() - before > 0
    assert sorted(world.publishers()) == sorted(keys)
    assert "2 publishers" in stranger.fails("simulate", "room", *options, "--devices", "3", code=2)
    file.write_text("only-a-key\n")
    assert "line 1" in stranger.fails("simulate", "room", *options, code=2)
    for key in keys:
        Shell(tmp_path / "home", world.node)("publisher", "delete", "room", key)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--payload", "{{nothing}}"), "unknown placeholder {{nothing}}"),
        (("--for", "1"), "not a duration"),
        (("--for", "0s"), "more than 0s"),
        (("--devices", "0"), "0"),
        (("--devices", "901"), "900"),
        (("--devices", "301", "--mqtt"), "at most 300"),
        (("--type", ""), "event type"),
        (("--to", "ftp://node"), "address"),
        (("--mqtt", "--to", "http://127.0.0.1"), "--mqtt"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_made(
    world: World, shell: Shell, options: tuple[str, ...], said: str
) -> None:
    assert said in shell.fails("simulate", "room", *options, code=2)
    assert world.publishers() == []


def test_an_unknown_project_is_told(shell: Shell) -> None:
    assert "nowhere" in shell.fails("simulate", "nowhere", "--for", "1s")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_fleet_shows_its_figures_and_removes_its_publishers(
    world: World, shell: Shell, number: signal.Signals
) -> None:
    before = world.count()
    options = ("--devices", "3", "--rate", "20", "--for", "1h", "--type", "START")
    with shell.start("--json", "simulate", "room", *options, stdout=subprocess.PIPE) as process:
        until(lambda: world.count() > before, "the fleet sends")
        assert len(world.publishers()) == 3
        process.send_signal(number)
        shown = json.loads(process.communicate(timeout=LIMIT_S)[0])
    assert process.returncode == 130
    assert shown["committed"] == world.count() - before
    assert world.publishers() == []


@pytest.mark.thorough
def test_a_fleet_outlives_a_crash_of_the_node_and_its_events_run_once(
    start_node: StartNode, tmp_path: Path
) -> None:
    world = World(start_node())
    shell = Shell(tmp_path / "home", world.node)
    for transport in ("http", "mqtt"):
        before = world.count()
        options = ("--devices", "4", "--rate", "10", "--for", "1h", "--type", "START")
        command = ("--json", "simulate", "room", *options, *over(transport, world.node))
        with shell.start(*command, stdout=subprocess.PIPE) as process:
            until(lambda: world.count() > before + 10, "the fleet sends")  # noqa: B023
            world.node.kill()
            world.node.start()
            again = world.count()
            until(lambda: world.count() > again + 10, "the fleet sends again")  # noqa: B023
            process.send_signal(signal.SIGINT)
            shown = json.loads(process.communicate(timeout=LIMIT_S)[0])
        assert shown["retries"] > 0
        assert shown["lastProblem"]
        # An event whose sender has stopped waiting may be committed, too.
        assert shown["committed"] <= world.count() - before <= shown["sent"]
        assert world.publishers() == []


def test_a_terminal_gets_a_table_that_changes_and_a_pipe_gets_lines(
    world: World, shell: Shell
) -> None:
    options = ("simulate", "room", "--devices", "2", "--rate", "10", "--for", "2s")
    command = (*options, "--type", "START")
    piped = shell.text(*command)
    assert "\x1b" not in piped
    assert "committed" in piped
    terminal, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fieldbrook", *command], env=shell.environment, stdout=inner
    )
    os.close(inner)
    shown = b""
    try:
        while data := _read(terminal):
            shown += data
    finally:
        os.close(terminal)
    assert process.wait(LIMIT_S) == 0
    assert shown.count(b"\x1b[J") >= 2
    last = shown.rpartition(b"\x1b[J")[2].decode()
    figures: dict[str, Any] = dict(line.split(None, 1) for line in last.splitlines() if line)
    assert figures["waiting"] == "0"
    assert figures["committed"].split()[0] == figures["sent"].strip()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other side has closed it
        return b""


@pytest.mark.thorough
def test_a_fleet_sends_over_tls(tmp_path: Path) -> None:
    node = TlsNode(tmp_path)
    try:
        node.log_in()
        world = World(node)
        shell = Shell(tmp_path / "home", node)
        shell.environment["FIELDBROOK_SERVER"] = f"https://localhost:{node.http_port}"
        shell.environment["FIELDBROOK_CA"] = str(node.files.ca)
        options = ("--devices", "2", "--rate", "5", "--for", "1s", "--type", "START")
        for to in ((), ("--mqtt", "--to", f"mqtts://localhost:{node.mqtt_port}")):
            before = world.count()
            done = shell.json("simulate", "room", *options, *to)
            assert done["committed"] == world.count() - before > 0
    finally:
        node.stop()
