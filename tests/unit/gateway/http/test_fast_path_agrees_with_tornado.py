"""The fast path with Tornado behind it answers whatever is sent as Tornado alone does."""

from __future__ import annotations

import asyncio

import pytest

from fieldbrook.gateway.http.request_head import read_head
from tests.http_streams import HOSTS, disagreements

SEEDS = 8


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whole_streams_of_requests_are_answered_as_by_tornado_alone(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(100)  # Tornado warns of every malformed request
    assert asyncio.run(disagreements(seed)) == []


@pytest.mark.parametrize("host", ["a@b", "{x}", "a b", "a,b", "a/b", "\xe9", "%4", "", " "])
def test_a_host_that_tornado_refuses_never_belongs_to_the_fast_path(host: str) -> None:
    assert host in HOSTS
    head = (
        f"POST /srv-applet-mgr/v0/event/room HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"
    )
    assert read_head(head.encode("latin-1")) is None
