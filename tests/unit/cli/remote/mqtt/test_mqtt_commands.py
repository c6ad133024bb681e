"""The commands of administrators for the MQTT server, with the real routes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.cli import main
from fieldbrook.core.model import ADMIN
from tests.support.management import serving, started
from tests.support.mqtt_memory import DirectInspection, MemoryMqtt, client, session


@dataclass
class Terminal:
    """Runs commands on a node with an MQTT server in memory."""

    mqtt: MemoryMqtt
    server: str
    output: Callable[[], Any]

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Run `mqtt ARGUMENTS`; return exit code, output and messages."""
        code = main.run(["--server", self.server, "mqtt", *arguments])
        said = self.output()
        return code, said.out, said.err

    def json(self, *arguments: str) -> Any:
        code, out, err = self(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Terminal]:
    server, context = started(tmp_path)
    mqtt = MemoryMqtt()
    with serving(replace(context, mqtt=DirectInspection(mqtt))) as server.port:
        monkeypatch.setenv("FIELDBROOK_TOKEN", server.account("root", ADMIN).token)
        yield Terminal(mqtt, f"http://127.0.0.1:{server.port}", capsys.readouterr)
    server.writer.close()


def test_clients_are_listed_shown_and_disconnected(terminal: Terminal) -> None:
    terminal.mqtt.add(client("a"), client("b", "publisher 7"), client("b"))
    code, out, err = terminal("clients")
    head, *rows = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split()[:4] == ["CLIENT", "PRINCIPAL", "ADDRESS", "VIA"]
    assert len(rows) == 3
    code, out, err = terminal("clients", "--limit", "2")
    assert len(out.splitlines()) == 3
    assert err == "there may be more: raise --limit\n"
    assert [row["clientID"] for row in terminal.json("clients")] == ["a", "b", "b"]
    code, out, _ = terminal("client", "a")
    assert "unacknowledged in   3\n" in out
    code, _, err = terminal("client", "b")
    assert code == 1
    assert "several have this id: -, publisher 7" in err
    assert terminal.json("client", "b", "--principal", "publisher 7")["principal"] == "publisher 7"
    assert terminal("disconnect", "a")[:2] == (0, "disconnected a\n")
    assert terminal("disconnect", "a")[0] == 1
    assert terminal("disconnect", "b", "--principal", "-")[0] == 0
    assert [each.principal for each in terminal.mqtt.connected.values()] == ["publisher 7"]


def test_lists_are_read_in_parts(terminal: Terminal) -> None:
    terminal.mqtt.add(*(client(f"{number:05}") for number in range(1_500)))
    assert len(terminal.json("clients", "--limit", "2000")) == 1_500
    assert len(terminal.json("sessions", "--limit", "1200")) == 1_200


def test_sessions_are_listed_shown_and_removed(terminal: Terminal) -> None:
    away = session("away")
    terminal.mqtt.known[away.key] = away
    assert "away" in terminal("sessions")[1]
    code, out, _ = terminal("session", "away")
    assert code == 0
    assert "queued bytes        500\n" in out
    assert [line.split()[:2] for line in out.splitlines()[-2:]] == [["a/#", "1"], ["b", "2"]]
    assert len(terminal.json("session", "away")["filters"]) == 2
    code, out, _ = terminal("session", "away", "--remove", "--yes")
    assert (code, out) == (0, "removed the session of away\n")
    assert terminal("session", "away")[0] == 1
    assert "there are no sessions" in terminal("sessions")[2]


def test_retained_messages_are_listed_shown_and_removed(terminal: Terminal) -> None:
    terminal.mqtt.retain("a/b", b"\x1b[31mred")
    assert terminal.json("retained") == [{"topic": "a/b", "qos": 1, "size": 8}]
    _, out, _ = terminal("retained", "a/b")
    assert "payload   \\x1b[31mred\n" in out
    assert terminal("retained", "--remove")[0] == 2
    assert terminal("retained", "a/b", "--remove", "--yes")[1] == "removed the message of a/b\n"
    assert terminal("retained", "a/b")[0] == 1
    assert terminal("retained")[2] == "no message is retained\n"


def test_a_message_is_published_from_an_argument_or_a_file(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.mqtt.add(client("a"))
    code, out, _ = terminal("publish", "t", "on", "--qos", "1", "--retain")
    assert (code, out) == (0, "published 2 bytes to t: 1 receiver\n")
    (tmp_path / "raw").write_bytes(b"\0\xff")
    assert terminal.json("publish", "t", f"@{tmp_path / 'raw'}") == {
        "topic": "t",
        "size": 2,
        "receivers": 1,
    }
    assert terminal.mqtt.published == [("t", b"on", 1, True), ("t", b"\0\xff", 0, False)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["status"], "mqtt sessions"),
        (["clear", "retained"], "mqtt retained TOPIC --remove"),
        (["clear"], "mqtt session CLIENT --remove"),
    ],
)
def test_a_command_of_the_embedded_broker_says_what_replaces_it(
    old: list[str], new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["mqtt", *old]) == 2
    assert new in capsys.readouterr().err
