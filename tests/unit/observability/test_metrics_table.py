"""The table that all processes of a node write their metrics into."""

from __future__ import annotations

import os

import pytest

from fieldbrook.observability import metrics, metrics_table
from fieldbrook.observability.metrics_table import NO_ROW, RowAllocator, Table

pytestmark = pytest.mark.usefixtures("own_row")


def in_another_process(table: Table, slot: int, counts: dict[int, float]) -> None:
    """Let a fork write a row and end without any clean-up, like after a kill."""
    pid = os.fork()
    if pid == 0:
        metrics.here.row = table.attach(slot)
        for column, number in counts.items():
            metrics.add(column, number)
        os._exit(9)
    os.waitpid(pid, 0)


def test_what_a_killed_process_has_counted_is_there_and_its_successor_goes_on_from_it() -> None:
    table = Table(4)
    table.name(0, "http:0")
    in_another_process(table, 0, {metrics.EVENTS_RECEIVED: 3, metrics.QUEUE_EVENTS: 7})
    table.detach(0)
    in_another_process(table, 0, {metrics.EVENTS_RECEIVED: 2})
    (row,) = table.read()
    assert row.part == "http:0"
    assert row.numbers[metrics.EVENTS_RECEIVED] == 5
    assert row.numbers[metrics.QUEUE_EVENTS] == 0


def test_gauges_end_with_their_process_and_its_pid_does() -> None:
    table = Table(4)
    table.name(0, "mqtt:0")
    in_another_process(table, 0, {metrics.MQTT_BACKLOG: 7})
    assert table.read()[0].numbers[metrics.MQTT_BACKLOG] == 7
    assert table.read()[0].pid > 0
    table.detach(0)
    assert table.read()[0].numbers[metrics.MQTT_BACKLOG] == 0
    assert table.read()[0].pid == 0


def test_a_fixed_part_keeps_its_row_and_projects_take_what_is_free() -> None:
    slots = RowAllocator(rows=4)
    assert slots.assign("http:0") == (0, "http:0")
    assert slots.assign("project:7") == (1, "projects:7")
    assert slots.assign("project:8") == (2, "projects:8")
    slots.release("project:7", 1)
    slots.release("http:0", 0)
    assert slots.assign("project:9") == (1, "projects:9")
    assert slots.assign("http:0") == (0, "http:0")


def test_as_many_projects_as_are_wanted_have_a_row_of_their_own_and_keep_it() -> None:
    slots = RowAllocator(rows=8, named=1)
    assert slots.assign("project:7") == (0, "project:7")
    slots.release("project:7", 0)
    assert slots.assign("project:8") == (1, "projects:8")
    assert slots.assign("project:7") == (0, "project:7")


def test_beyond_the_last_row_a_process_counts_for_itself_alone() -> None:
    slots = RowAllocator(rows=1)
    slots.assign("http:0")
    assert slots.assign("project:1")[0] == NO_ROW
    slots.release("project:1", NO_ROW)
    assert slots.assign("project:2")[0] == NO_ROW
    metrics_table.attach(NO_ROW)
    metrics.add(metrics.EVENTS_RECEIVED)
    assert metrics.here.row[metrics.EVENTS_RECEIVED] == 1
