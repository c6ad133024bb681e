"""A project with an applet and publishers, for the pages that show the processing of events."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from tests.support.management import wasm
from tests.support.nodes import RunningNode, message, strategies
from tests.support.projects import MODULE

_NUMBERS = itertools.count(1)


class Project:
    """A project whose handler `start` does what the first byte of the payload selects."""

    def __init__(self, node: RunningNode, publishers: Iterable[str] = ("sensor-1",)) -> None:
        self.node = node
        self.name = f"pages{next(_NUMBERS)}"
        node.create_project(self.name)
        self.module = wasm(MODULE.decode())
        self.applet = node.deploy(self.name, self.module, "meter", strategies=strategies("start"))
        self.publishers = {key: node.add_publisher(self.name, key) for key in publishers}

    def send(
        self,
        payload: bytes = b"ck",
        event_type: str = "START",
        publisher: str = "sensor-1",
        event_id: str = "",
    ) -> Any:
        """Send one event and return its answer; types other than START have no handler."""
        sent = message(self.publishers[publisher], payload, event_type)
        if event_id:
            sent["header"]["event_id"] = event_id
        answer = self.node.send(self.name, sent)
        assert answer.status == (201 if event_type == "START" else 404), answer
        return answer.json

    @property
    def path(self) -> str:
        """The path of the project's pages."""
        return f"/projects/{self.name}"
