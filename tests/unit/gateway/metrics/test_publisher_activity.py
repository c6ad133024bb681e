"""The activity of publishers: in one process, and in all gateway processes together."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.gateway.metrics.publisher_activity import (
    PUBLISHERS,
    NodeActivity,
    answer_publishers,
    gateway_parts,
)
from fieldbrook.gateway.peers import serve_peers
from fieldbrook.observability import publisher_counts
from fieldbrook.observability.publisher_counts import PublisherCounts, Seen


def test_events_add_up_and_the_last_one_has_its_second() -> None:
    now = [100.9]
    counts = PublisherCounts(clock=lambda: now[0])
    counts.fresh[7] += 2
    assert counts.read([7, 8]) == [Seen(100, 2), None]
    counts.fresh[7] += 1
    now[0] = 205.0
    counts.fold()
    now[0] = 999.0
    assert counts.read([7]) == [Seen(205, 3)]


def test_publishers_that_have_been_silent_longest_are_forgotten() -> None:
    counts = PublisherCounts(limit=3, clock=lambda: 1.0)
    for publisher_id in (1, 2, 3, 1, 4, 5):
        counts.fresh[publisher_id] += 1
        counts.fold()
    found = counts.read(range(6))
    assert [seen and seen.events for seen in found] == [None, 2, None, None, 1, 1]


def test_all_gateway_processes_count_and_one_that_is_gone_counts_as_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = PublisherCounts(clock=lambda: 50.0)
    monkeypatch.setattr(publisher_counts, "here", own)

    async def of_broker(argument: Any) -> Any:
        return [[60, 10] if publisher_id < 3 else None for publisher_id in argument]

    async def ask() -> dict[int, Seen]:
        servers = [
            await serve_peers(tmp_path, "mqtt:0", {PUBLISHERS: of_broker}),
            await serve_peers(tmp_path, "http:1", {PUBLISHERS: answer_publishers}),
        ]
        own.fresh[1] += 5
        own.fresh[12_000] += 1
        try:
            parts = gateway_parts(3)
            assert parts == ["http:0", "http:1", "http:2", "mqtt:0"]
            return await NodeActivity(tmp_path, "http:0", parts).read(range(1, 12_001))
        finally:
            for server in servers:
                server.close()

    found = asyncio.run(ask())
    assert found == {1: Seen(60, 20), 2: Seen(60, 10), 12_000: Seen(50, 2)}
