"""The table that all processes of a node write their metrics into."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator

import pytest

from fieldbrook.observability import metrics
from fieldbrook.observability.metrics import NO_ROW, PROJECTS, RowAllocator, Table


@pytest.fixture(autouse=True)
def own_row() -> Iterator[None]:
    """What a test counts is nobody else's."""
    before = metrics.here.row
    metrics.here.row = memoryview(array("d", bytes(metrics.ROW_BYTES)))
    yield
    metrics.here.row = before


def in_another_process(table: Table, slot: int, counts: dict[int, float]) -> None:
    """Have a fork write a row and end as a kill would end it: with nothing tidied up."""
    pid = os.fork()
    if pid == 0:
        table.attach(slot)
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


def test_no_two_columns_overlap_and_all_fit_into_a_row() -> None:
    taken = [family.first + at for family in metrics.FAMILIES for at in range(family.columns)]
    assert taken == list(range(metrics.COLUMNS))
    names = [family.name for family in metrics.FAMILIES]
    assert len(set(names)) == len(names)
    table = Table(2)
    table.row(0)[metrics.COLUMNS - 1] = 1.0
    assert table.row(1).tolist() == [0.0] * len(table.row(1))


def test_a_latency_is_counted_in_the_first_bucket_that_holds_it() -> None:
    family = next(f for f in metrics.FAMILIES if f.name == "fieldbrook_event_duration_seconds")
    metrics.EVENT_SECONDS.observe(0.001)
    metrics.EVENT_SECONDS.observe_all([0.0011, 99.0])
    columns = metrics.here.row[family.first : family.first + family.columns].tolist()
    assert columns[:2] == [1.0, 1.0]
    assert columns[-2] == 1.0
    assert columns[-1] == pytest.approx(99.0021)


def test_an_unknown_error_is_counted_as_an_internal_one() -> None:
    metrics.refused("Unheard")
    assert metrics.here.row[metrics.EVENTS_REFUSED["InternalServerError"]] == 1


def test_a_fixed_part_keeps_its_row_and_projects_take_what_is_free() -> None:
    slots = RowAllocator(rows=4)
    assert slots.assign("http:0") == (0, "http:0")
    assert slots.assign("project:7") == (1, PROJECTS)
    assert slots.assign("project:8") == (2, PROJECTS)
    slots.release("project:7", 1)
    slots.release("http:0", 0)
    assert slots.assign("project:9") == (1, PROJECTS)
    assert slots.assign("http:0") == (0, "http:0")


def test_as_many_projects_as_are_wanted_have_a_row_of_their_own_and_keep_it() -> None:
    slots = RowAllocator(rows=8, named=1)
    assert slots.assign("project:7") == (0, "project:7")
    slots.release("project:7", 0)
    assert slots.assign("project:8") == (1, PROJECTS)
    assert slots.assign("project:7") == (0, "project:7")


def test_beyond_the_last_row_a_process_counts_for_itself_alone() -> None:
    slots = RowAllocator(rows=1)
    slots.assign("http:0")
    assert slots.assign("project:1")[0] == NO_ROW
    slots.release("project:1", NO_ROW)
    assert slots.assign("project:2")[0] == NO_ROW
    metrics.attach(NO_ROW)
    metrics.add(metrics.EVENTS_RECEIVED)
    assert metrics.here.row[metrics.EVENTS_RECEIVED] == 1
