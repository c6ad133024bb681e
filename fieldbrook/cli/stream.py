"""Live data of the node, as server-sent events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from fieldbrook.cli.client import Client
from fieldbrook.cli.errors import RefusedError


def follow(client: Client, path: Sequence[str], **query: object) -> Iterator[dict[str, Any]]:
    """Yield the messages of a route as they arrive: the route `/stream`, or a log with
    `follow=true`.

    The node ends a stream when the login ends, or after `token_lifetime_s`; then the stream is
    opened again at the same place.

    Raises:
        RefusedError: this login may not follow the topic (any more).
        UnreachableError: the node cannot be reached, or has ended.
        InvalidAnswerError: the node's answer is no stream.
    """
    while True:
        place = ""
        for line in client.lines(path, query):
            if line.startswith("id: "):
                place = line.removeprefix("id: ")
            if not line.startswith("data: "):
                continue
            message = json.loads(line.removeprefix("data: "))
            if "error" in message:
                raise RefusedError(int(message["error"]["code"]) // 1_000_000, message["error"])
            yield message
            if place:
                query["after"] = place
