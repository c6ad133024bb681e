"""Messages of the node's stream, as server-sent events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fieldbrook.cli.client import Client
from fieldbrook.cli.errors import RefusedError


def follow(client: Client, **query: object) -> Iterator[dict[str, Any]]:
    """Yield the messages of a topic as they come; see the route `/stream`.

    The node ends a stream when the login does, or after `token_lifetime_s`; then it is opened
    again where it was.

    Raises:
        RefusedError: the node does not let this login follow the topic, or no longer.
        UnreachableError: the node cannot be reached, or has ended.
    """
    while True:
        for line in client.lines(["stream"], query):
            if not line.startswith("data: "):
                continue
            message = json.loads(line.removeprefix("data: "))
            if "error" in message:
                raise RefusedError(int(message["error"]["code"]) // 1_000_000, message["error"])
            if message.get("place"):
                query["after"] = message["place"]
            yield message
