"""A node for the clients of every generation, and the exact bytes of their requests."""

from __future__ import annotations

import re
import socket
from typing import Any

from tests.support.applets import TALLY
from tests.support.nodes import Answer, StartNode, message
from tests.support.protobuf import Event
from tests.support.tools import LIMIT_S, free_port

PROJECT, BARE, OTHER = "NftMinter", "bare", "other"
WALLET = "eth_0x19e7e376e7c213b7e7e7e46cc70a5dd086daff2a"
HANDLERS = ("start", "echo", "seven", "fail")


class World:
    """A node with a project whose applet keeps the last payload, and a publisher.

    Event types are the handlers' names in capitals; `DEFAULT` and `MINT` are `echo`. The
    project `BARE` has a publisher and no strategy, `OTHER` has nothing.
    """

    def __init__(self, start: StartNode, *flags: str) -> None:
        self.event_port = free_port()
        self.node = start("--event-port", str(self.event_port), *flags)
        for name in (BARE, OTHER):
            self.node.create_project(name)
        self.bare: Any = self.node.add_publisher(BARE, "quiet")
        self.project: Any = self.node.create_project(PROJECT)
        rules = {name.upper(): name for name in HANDLERS} | {"DEFAULT": "echo", "MINT": "echo"}
        strategies = [{"eventType": name, "handler": rules[name]} for name in rules]
        applet = self.node.deploy(PROJECT, TALLY, "tally", strategies=strategies)
        self.applet_id: str = applet["appletID"]
        self.instance_id: str = applet["instance"]["instanceID"]
        self.publisher: Any = self.node.add_publisher(PROJECT, "my_publisher_id")
        self.token: str = self.publisher["token"]
        assert self.node.send(PROJECT, message(self.publisher, b"first")).status == 201

    @property
    def last(self) -> bytes:
        """Return the payload of the last call of `echo`."""
        return self.node.kv(PROJECT, self.applet_id, b"last")

    def count(self) -> int:
        """Return how many events `start` has counted."""
        return self.node.count(PROJECT, self.applet_id)

    def access_key(self, name: str, permission: str = "READ_WRITE", token: str = "") -> str:
        """Make an access key for sending events, for the account of `token`, or else the
        administrator."""
        body = {"name": name, "privileges": [{"name": "Event", "perm": permission}]}
        answer = self.node.call("POST", "/account_access_key", body, token=token or None)
        assert answer.status == 201, answer
        key: str = answer.json["accessKey"]
        return key

    def post(
        self,
        query: str = "",
        body: bytes = b"",
        *,
        channel: str = PROJECT,
        token: str | None = None,
        port: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """POST raw bytes like the later clients; without a token if it is empty."""
        path = f"/event/{channel}" + (f"?{query}" if query else "")
        token = self.token if token is None else token
        return self.node.call("POST", path, body, token=token, port=port, headers=headers)

    def send(self, head: str, body: bytes) -> Answer:
        """Send a request literally: lines of the head, without Content-Length."""
        lines = [line.strip() for line in head.strip().splitlines()]
        lines.append(f"Content-Length: {len(body)}")
        return exchange(self.node.http_port, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def protobuf(
    token: str, payload: bytes, event_type: str = "DEFAULT", pub_id: str = "", event_id: str = ""
) -> bytes:
    """Return a message in the form of ESP32 firmware."""
    event = Event(payload=payload)
    event.header.event_type, event.header.event_id = event_type, event_id
    event.header.pub_id, event.header.token = pub_id, token
    event.header.pub_time = 1_700_000_000_000
    return bytes(event.SerializeToString())


def exchange(port: int, request: bytes) -> Answer:
    """Send bytes over a connection of their own and read one answer."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as connection:
        connection.sendall(request)
        while b"\r\n\r\n" not in received:
            received += _some(connection)
        head, _, body = received.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        while len(body) < int(headers.get("Content-Length", "0")):
            body += _some(connection)
    matched = re.fullmatch(r"HTTP/1\.1 (\d{3}) .+", status)
    assert matched, status
    return Answer(int(matched[1]), headers, body)


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    assert data, "the node closed the connection"
    return data
