"""The shown fields of a monitor and of its progress."""

from __future__ import annotations

from typing import Any

import pytest

from fieldbrook.core.model import CHAIN_TX, CONTRACT_LOG, Monitor, Project
from fieldbrook.gateway.management.routes.chain.monitor_rows import (
    ContractLogReply,
    monitor_reply,
)
from fieldbrook.storage.chain.store import Cursor

PROJECT = Project(created_at=1, updated_at=1, project_id=1, account_id=1, name="p")


def monitor(**more: Any) -> Monitor:
    return Monitor(
        **{
            "created_at": 1,
            "updated_at": 1,
            "monitor_id": 2,
            "project_id": 1,
            "kind": CONTRACT_LOG,
            "chain_id": 5,
            "event_type": "E",
            "block_start": 10,
            "block_current": 10,
            "topics": ["", "", "", ""],
            **more,
        }
    )


@pytest.mark.parametrize(
    ("more", "cursor", "known", "state"),
    [
        ({}, None, True, "ACTIVE"),
        ({}, Cursor(20), True, "ACTIVE"),
        ({}, Cursor(20, error="no answer"), True, "FAILING"),
        ({}, Cursor(20, rewind=15), True, "TAKING_BACK"),
        ({"block_end": 20}, Cursor(19), True, "ACTIVE"),
        ({"block_end": 20}, Cursor(20), True, "TOLD"),
        ({"kind": CHAIN_TX}, Cursor(-1), True, "ACTIVE"),
        ({"kind": CHAIN_TX}, Cursor(20, events=1), True, "TOLD"),
        ({"kind": CHAIN_TX}, Cursor(19, events=2, removed=1), True, "ACTIVE"),
        ({"paused": True}, Cursor(20, error="no answer"), True, "PAUSED"),
        ({"finished": True}, Cursor(20), True, "FINISHED"),
        ({"paused": True}, Cursor(20), False, "NO_CHAIN"),
        ({"finished": True}, Cursor(20), False, "FINISHED"),
    ],
)
def test_a_monitors_state_is_what_holds_it_most(
    more: dict[str, Any], cursor: Cursor | None, known: bool, state: str
) -> None:
    assert monitor_reply(monitor(**more), PROJECT, cursor, 30, known=known).state == state


def test_a_monitor_whose_chain_does_not_answer_is_not_shown_as_if_it_went_on() -> None:
    shown = monitor_reply(monitor(), PROJECT, Cursor(20), 20, reachable=False)
    assert (shown.state, shown.lag) == ("UNREACHABLE", 0)
    failing = monitor_reply(monitor(), PROJECT, Cursor(20, error="full"), 20, reachable=False)
    assert failing.state == "FAILING"
    paused = monitor_reply(monitor(paused=True), PROJECT, Cursor(20), 20, reachable=False)
    assert paused.state == "PAUSED"


def test_the_lag_is_what_could_be_told_and_is_not() -> None:
    def logs(*about: Any) -> ContractLogReply:
        reply = monitor_reply(*about)
        assert isinstance(reply, ContractLogReply)
        return reply

    shown = logs(monitor(), PROJECT, Cursor(20, events=4, removed=1, failures=2), 30)
    assert (shown.block_current, shown.lag) == (21, 10)
    assert (shown.events, shown.removed_events, shown.failures) == (4, 1, 2)
    ahead = logs(monitor(block_start=50), PROJECT, Cursor(49), 30)
    assert (ahead.block_current, ahead.lag) == (50, 0)
    whole = logs(monitor(block_end=25), PROJECT, Cursor(25), 30)
    assert (whole.block_current, whole.lag) == (26, 0)
    done = logs(monitor(finished=True, block_current=40), PROJECT, Cursor(39), 90)
    assert (done.block_current, done.lag) == (40, 0)
