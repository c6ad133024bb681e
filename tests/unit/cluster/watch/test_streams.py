"""A monitoring page of the engine about the streams of a host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fieldbrook.cluster.watch.streams import (
    BEHIND_RECORDS,
    Streams,
    are_caught_up,
    read_page,
    read_streams,
)
from fieldbrook.core.errors import EngineUnreachableError


def stream(name: str, leader: str, *replicas: dict[str, Any]) -> dict[str, Any]:
    group = {"raft_group": f"S-R3F-{name}", "leader": leader, "replicas": list(replicas)}
    return {"name": name, "cluster": group}


def replica(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "current": True, "active": 1_000_000, **more}


def page(*streams: dict[str, Any]) -> bytes:
    accounts = [{"name": "SYSTEM"}, {"name": "NODE", "stream_detail": list(streams)}]
    config = {"max_storage": 1 << 30, "sync_always": True}
    found = {"config": config, "storage": 4_096, "account_details": accounts}
    return json.dumps(found).encode()


def test_streams_are_held_led_or_without_a_leader() -> None:
    found = read_page(
        page(
            stream("J0", "h1", replica("h2"), replica("h3")),
            stream("J1", "h2", replica("h2"), replica("h3")),
            stream("J2", "", replica("h2"), replica("h3")),
        ),
        "h1",
    )
    assert (found.held, found.led, found.stalled, found.at_risk) == (3, 1, 1, 0)
    assert (found.used_bytes, found.limit_bytes) == (4_096, 1 << 30)


def test_an_engine_without_a_route_leads_nothing_although_it_says_so() -> None:
    alone = {"name": "J0", "cluster": {"name": "c1", "leader": "h1"}}
    found = read_page(page(alone), "h1")
    assert (found.held, found.led, found.stalled) == (1, 0, 1)


LED = {"leader": "R3X9uyZk", "committed": 8_000, "applied": 7_990}


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ({"J0": LED, "J1": LED}, True),
        ({"J0": LED, "J1": {"committed": 5, "applied": 5}}, False),  # no leader is known
        ({"J0": LED, "J1": {**LED, "catching_up": True}}, False),
        ({"J0": LED, "J1": {**LED, "applied": 7_000}}, False),
        ({}, False),  # without a route
    ],
)
def test_an_engine_has_caught_up_when_it_follows_the_leaders_of_all_streams(
    groups: dict[str, Any], expected: bool
) -> None:
    assert are_caught_up(json.dumps({"NODE": groups} if groups else {}).encode()) is expected


@pytest.mark.parametrize(
    "late",
    [
        {"offline": True},
        {"active": 9_000_000_000},
        {"current": False, "active": 0},  # the report of a new leader about a dead host
        {"lag": BEHIND_RECORDS + 1},
    ],
)
def test_a_stream_with_a_copy_that_is_not_complete_is_at_risk(late: dict[str, Any]) -> None:
    led = stream("J0", "h1", replica("h2"), replica("h3", **late))
    found = read_page(page(led), "h1")
    assert (found.at_risk, found.behind) == (1, ("h3",))
    of_another = stream("J0", "h2", replica("h2"), replica("h3", **late))
    assert read_page(page(of_another), "h1").at_risk == 0


def test_a_copy_that_lacks_a_few_records_for_a_moment_is_complete() -> None:
    led = stream("J0", "h1", replica("h2", current=False, lag=4), replica("h3"))
    assert read_page(page(led), "h1").at_risk == 0


def test_a_fifth_copy_may_be_missing() -> None:
    names = ("h2", "h3", "h4")
    led = stream("J0", "h1", replica("h5", offline=True), *map(replica, names))
    assert read_page(page(led), "h1").at_risk == 0


def test_what_other_hosts_lack_is_summed_over_the_streams() -> None:
    led = [stream(name, "h1", replica("h2", lag=3), replica("h3")) for name in ("J0", "J1")]
    assert read_page(page(*led), "h1").lags == {"h2": 6, "h3": 0}


def test_a_page_without_streams_or_of_another_form() -> None:
    assert read_page(b"{}", "h1") == Streams()
    with pytest.raises(msgspec.MsgspecError):
        read_page(b"[]", "h1")


def test_an_engine_that_does_not_run_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(EngineUnreachableError):
        read_streams(tmp_path / "engine", "h1")
    (tmp_path / "1.ports").write_text('{"monitoring": ["http://127.0.0.1:1"]}')
    with pytest.raises(EngineUnreachableError):
        read_streams(tmp_path, "h1")
