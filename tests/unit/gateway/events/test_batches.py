"""A batch whose messages are refused leaves the event loop to others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from fieldbrook.core.clock import now_ms
from fieldbrook.core.model import DEVELOPER
from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.events.message import BATCH_LIMIT
from fieldbrook.gateway.replies import EventReply
from fieldbrook.storage.registry.service import RegistryWriter

KEY = b"k" * 32


async def test_a_batch_of_thousands_of_wrong_tokens_is_refused_piece_by_piece(
    tmp_path: Path,
) -> None:
    writer = RegistryWriter(tmp_path / "registry", 4 << 20, now_ms, KEY)
    account = writer.create_account("ada", "h", DEVELOPER)
    project = writer.create_project(account.account_id, "room")
    writer.create_publisher(project.project_id, "sensor", "s")
    nothing = cast("Any", None)  # no event is accepted, and no publisher is created
    events = EventService(writer.reader(), nothing, KEY, nothing, "v", 1 << 20)
    item = {"header": {"pub_id": "s", "token": "wrong"}}
    body = json.dumps({"events": [item] * BATCH_LIMIT}).encode()
    answers = list[EventReply]()
    longest, pieces = 0.0, 0
    more: Callable[[], bool] | None = None
    done = False
    while not done:
        assert not answers
        began = time.thread_time()
        if more is None:
            more = events.accept("room", body, answers.append)
            assert more is not None
        else:
            done = more()
        longest, pieces = max(longest, time.thread_time() - began), pieces + 1
    assert pieces > 10
    assert longest < 0.2  # all of it takes a second
    (answer,) = answers
    results = json.loads(answer.body)
    assert len(results) == BATCH_LIMIT
    assert all("token" in result["errMsg"] for result in results)
    assert len({result["eventID"] for result in results}) == BATCH_LIMIT
    writer.close()
