"""Requests between gateway processes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.core.errors import UnavailableError
from fieldbrook.gateway.metrics.series import Series
from fieldbrook.gateway.metrics.series_client import (
    SAMPLER,
    SERIES,
    LocalSeries,
    RemoteSeries,
    SeriesQuery,
)
from fieldbrook.gateway.peers import ask_peer, peer_socket, serve_peers
from fieldbrook.observability.metrics_table import Table


async def double(argument: Any) -> Any:
    return argument * 2


def test_a_question_is_answered_by_the_process_that_it_names(tmp_path: Path) -> None:
    async def ask() -> Any:
        server = await serve_peers(tmp_path, "http:1", {"double": double})
        try:
            return await ask_peer(tmp_path, "http:1", "double", 21)
        finally:
            server.close()

    assert asyncio.run(ask()) == 42


def test_a_process_that_is_not_there_or_knows_no_answer_is_unavailable(tmp_path: Path) -> None:
    async def ask(question: str, part: str) -> None:
        server = await serve_peers(tmp_path, "http:1", {"double": double})
        try:
            await ask_peer(tmp_path, part, question, 21)
        finally:
            server.close()

    for question, part in (("triple", "http:1"), ("double", "http:2")):
        with pytest.raises(UnavailableError, match=part):
            asyncio.run(ask(question, part))


def test_a_socket_that_a_killed_process_left_is_taken_over(tmp_path: Path) -> None:
    async def serve() -> None:
        left = await asyncio.start_unix_server(lambda *_: None, str(peer_socket(tmp_path, "a")))
        left.close()
        server = await serve_peers(tmp_path, "a", {"double": double})
        assert await ask_peer(tmp_path, "a", "double", 1) == 2
        server.close()

    asyncio.run(serve())


def test_the_series_of_another_process_are_the_same_as_its_own(tmp_path: Path) -> None:
    table, now = Table(2), [100.0]
    table.name(0, "project:12")
    series = Series(lambda: table, clock=lambda: now[0], monotonic=lambda: now[0])
    for _ in range(5):
        series.sample()
        now[0] += 1
        table.row(0)[0] += 1
    local, remote = LocalSeries(series), RemoteSeries(tmp_path)
    node = SeriesQuery(names=["events", "eventP99Ms"], begin=0, end=1_000, step_s=1)
    project = SeriesQuery(names=["failed"], begin=0, end=1_000, step_s=1, project_id=12)

    async def compare() -> None:
        server = await serve_peers(tmp_path, SAMPLER, {SERIES: local.answer})
        for query in (node, project):
            here, there = await local.read(query), await remote.read(query)
            assert str(here) == str(there)  # nan differs from itself
            assert len(here.columns[0]) == 4
        server.close()

    asyncio.run(compare())
