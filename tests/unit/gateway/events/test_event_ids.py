"""The ids that a gateway gives to events without one."""

from __future__ import annotations

import os
import time

import pytest

from fieldbrook.core.cluster.membership import is_host_name
from fieldbrook.gateway.events.handling import EventIds
from fieldbrook.gateway.events.message import EVENT_ID_LIMIT


@pytest.fixture(autouse=True)
def one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all ids at the same microsecond, in processes with the same id."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_000_000_000)
    monkeypatch.setattr(os, "getpid", lambda: 4_242)


def test_two_hosts_never_give_the_same_id() -> None:
    one, other = EventIds("h1"), EventIds("h2")
    ids = [make() for make in (one, other) for _ in range(3)]
    assert len(set(ids)) == 6
    assert sorted(ids[:3]) == ids[:3]


def test_a_node_that_runs_alone_gives_ids_as_before() -> None:
    assert EventIds()() == "6651728988000-1092-1"


def test_the_longest_name_of_a_host_leaves_an_id_that_can_be_sent_again() -> None:
    name = "h" * 63
    assert is_host_name(name)
    assert not is_host_name(name + "h")
    ids = EventIds(name)
    ids._numbers = iter([2**64])  # type: ignore[assignment]
    assert len(ids()) <= EVENT_ID_LIMIT
