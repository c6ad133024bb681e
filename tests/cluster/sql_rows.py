"""A project with an SQL table, whose rows are counted after each fault of its hosts."""

from __future__ import annotations

import json
import threading
from http.client import HTTPException
from typing import Any

from tests.integration.test_sql import MODULE, TABLE
from tests.support.hosts import Host
from tests.support.nodes import message, named, strategies, until

PROJECT = "sql"
INSERT = "INSERT INTO t_readings (f_device, f_celsius) VALUES (?, 21.5)"
COUNTS = "SELECT count(*) AS n, count(DISTINCT f_device) AS d FROM t_readings"


class Rows:
    """A project of a cluster whose handlers write rows of a table.

    Attributes:
        inserted: the number of rows that were acknowledged, or are about to be.
    """

    def __init__(self) -> None:
        self.inserted = 0

    def prepare(self, host: Host) -> None:
        """Create the project on a host, and its first rows."""
        self.project: Any = host.create_project(PROJECT)
        self.configure(host, TABLE)
        handlers = strategies("set", "get", "set_and_trap")
        self.applet: str = host.deploy(PROJECT, MODULE, strategies=handlers)["appletID"]
        self.publisher: Any = host.add_publisher(PROJECT, "d")
        for _ in range(3):
            self.insert(host)

    def configure(self, host: Host, table: dict[str, Any]) -> None:
        path, found = f"/project_config/x/{PROJECT}/PROJECT_DATABASE", {"tables": [table]}
        answer = host.call("POST", path, {"schemas": [{"schema": "public", **found}]})
        assert answer.status == 201, answer

    def request(self, kind: str, statement: str, *values: str) -> dict[str, Any]:
        params = [{"string": value} for value in values]
        body = json.dumps({"statement": statement, "params": params})
        return message(self.publisher, body.encode(), kind)

    def run(self, host: Host, kind: str, statement: str, *values: str) -> int:
        """Send an event until a host takes it; the code of its handler."""
        event = named(self.request(kind, statement, *values), f"{kind}-{len(values)}-{values}")
        if kind == "GET":
            del event["header"]["event_id"]

        def taken() -> tuple[int] | None:
            try:
                answer = host.send(PROJECT, event)
            except (OSError, HTTPException):
                return None  # the host is down
            return (answer.json["results"][0]["code"],) if answer.status == 201 else None

        (code,) = until(taken, "the event is taken")
        return int(code)

    def insert(self, host: Host) -> None:
        self.inserted += 1
        assert self.run(host, "SET", INSERT, f"device {self.inserted}") == 0

    def counts(self, host: Host) -> tuple[int, int]:
        """The number of rows, and of different devices in them, asked at any host."""
        assert self.run(host, "GET", COUNTS) == 0
        found = json.loads(host.kv(PROJECT, self.applet, b"rows"))
        return found["n"], found["d"]

    def page(self, host: Host) -> list[Any]:
        """Return the first rows in an order, asked at a host."""
        answer = host.call("GET", f"/sql/{PROJECT}/t_readings?limit=500&order=f_device")
        assert answer.status == 200, answer
        return list(answer.json["data"])

    def move(self, to: Host) -> None:
        """Move the project to a host, and wait until it runs there."""
        path = f"/cluster/projects/{PROJECT}/pin"
        assert to.call("PUT", path, {"host": to.name}).status == 204

        def is_there() -> bool:
            rows = to.call("GET", "/cluster/projects").json["data"]
            return any((row["project"], row["host"]) == (PROJECT, to.name) for row in rows)

        until(is_there, f"the project is on {to.name}")


class Inserts:
    """A device that inserts rows at a host until the block ends."""

    def __init__(self, rows: Rows, host: Host) -> None:
        self._rows, self._host = rows, host
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._insert)

    def __enter__(self) -> Inserts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def await_more(self, count: int) -> None:
        wanted = self._rows.inserted + count
        until(lambda: self._rows.inserted >= wanted, "more are inserted")

    def _insert(self) -> None:
        while not self._over.is_set():
            self._rows.insert(self._host)
