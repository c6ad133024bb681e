"""Projects with tables on a PostgreSQL server, over deaths of the server and of the node's
processes."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.storage.sql.postgres.namespace import namespace_of
from tests.support.nodes import RunningNode, message, named, parts, until
from tests.support.postgres import PostgresServer
from tests.support.tools import LIMIT_S

MODULES = Path(__file__).parents[1] / "modules"
TABLE = {"name": "t_seen", "cols": [{"name": "f_event", "constrains": {"datatype": "TEXT"}}]}
INSERT = "INSERT INTO t_seen (f_event) VALUES (?)"
LOAD_S, SENDERS, BATCH = 8.0, 3, 8
KILLS, EVENTS = 3, 50  # at least
SEED = 31


class Served:
    """A node with a project whose events are written to both stores."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.server = server
        settings = folder / "node.toml"
        settings.write_text(f'postgres_dsn = "{server.dsn}"\nsql_rows = 50\n')
        self.node = RunningNode(folder / "n", "--config", str(settings))
        self.node.log_in()
        self.node.create_project("sql")
        config = {"schemas": [{"schema": "public", "tables": [TABLE]}]}
        answer = self.node.call("POST", "/project_config/x/sql/PROJECT_DATABASE", config)
        assert answer.status == 201, answer
        module = (MODULES / "ledger.wat").read_bytes()
        self.applet_id = self.node.deploy("sql", module)["appletID"]
        self.publisher = self.node.add_publisher("sql", "d")
        assert self.send("first") == 201

    def event(self, name: str) -> dict[str, Any]:
        """Return an event of this name, whose handler inserts the name."""
        request = {"statement": INSERT, "params": [{"string": name}]}
        return named(message(self.publisher, json.dumps(request).encode()), name)

    def send(self, name: str) -> int:
        """Send one event; return its status."""
        return self.node.send("sql", self.event(name)).status

    @property
    def project(self) -> Path:
        """Return the project's folder, when the project has run."""
        (only,) = (self.node.data / "projects").iterdir()
        return only

    def rows(self) -> list[str]:
        """Return the committed rows on the server."""
        found = self.server.run(
            f'SELECT f_event FROM "{namespace_of(self.project)}".t_seen ORDER BY f_event'
        )
        return [str(name) for (name,) in found]

    def kill_project(self) -> None:
        """Kill the project's worker with SIGKILL, if it runs."""
        pid = parts(self.node).get("project")
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("pg"), postgres)
    yield made
    made.node.stop()


def test_an_event_is_in_both_stores_and_its_repetition_in_none(served: Served) -> None:
    before = served.node.count("sql", served.applet_id)
    assert [served.send("once"), served.send("once")] == [201, 201]
    assert served.rows().count("once") == 1
    assert served.node.count("sql", served.applet_id) == before + 1


def test_while_the_server_is_down_events_are_refused_and_afterwards_taken(
    served: Served,
) -> None:
    served.server.stop()
    try:
        answer = served.node.send("sql", served.event("down"))
        assert answer.status == 503, answer
        assert answer.json["key"] == "DatabaseUnreachable"
    finally:
        served.server.start()
    until(lambda: served.send("down") == 201, "it is taken")
    assert served.rows().count("down") == 1
    letters = served.node.call("GET", "/dead_letter/sql").json
    assert letters["total"] == 0, "nobody's handler was at fault"


def _load(
    served: Served, sender: int, over: threading.Event, taken: list[str], failed: list[str]
) -> None:
    """Send named events until the end, each until it is accepted, and record their names."""
    for number in range(1_000_000):
        if over.is_set():
            break
        waiting = [f"s{sender}-{number}-{n}" for n in range(BATCH)]
        while waiting:
            with suppress(OSError, HTTPException):
                answer = served.node.send("sql", {"events": [served.event(n) for n in waiting]})
                if answer.status != 201:
                    continue
                items = dict(zip(waiting, answer.json, strict=True))
                done = [name for name, item in items.items() if item.get("wasmResults")]
                codes = {name: items[name]["wasmResults"][0] for name in done}
                failed += [f"{name}: {code}" for name, code in codes.items() if code["code"]]
                taken += done
                waiting = [name for name in waiting if name not in codes]


def _more_than(taken: list[str], known: int) -> bool:
    return len(taken) > known


@pytest.mark.timeout(300)
@pytest.mark.thorough
def test_whoever_is_killed_each_event_is_in_both_stores_once(served: Served) -> None:
    before = (len(served.rows()), served.node.count("sql", served.applet_id))
    chance = random.Random(SEED)
    ends_at, over = time.monotonic() + LOAD_S, threading.Event()
    taken: list[str] = []
    failed: list[str] = []

    def send(sender: int) -> None:
        _load(served, sender, over, taken, failed)

    senders = [threading.Thread(target=send, args=(n,)) for n in range(SENDERS)]
    for thread in senders:
        thread.start()
    kills = 0
    while time.monotonic() < ends_at or kills < KILLS or len(taken) < EVENTS:
        time.sleep(chance.uniform(0.3, 1.2))
        if chance.random() < 0.5:
            # An event that runs at two consecutive deaths is regarded as their cause.
            until(partial(_more_than, taken, len(taken)), "an event is taken")
            served.kill_project()
        else:
            served.server.kill()
            time.sleep(chance.uniform(0, 0.3))
            served.server.start()
        kills += 1
    over.set()
    for thread in senders:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    names = sorted(taken)
    assert failed == []
    rows = [name for name in served.rows() if name.startswith("s")]
    assert len(rows) == len(set(rows)), "doubled"
    assert rows == names
    assert len(served.rows()) == before[0] + len(names)
    assert served.node.count("sql", served.applet_id) == before[1] + len(names)
