"""The queue of a device on its disk."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.device.disk_queue import FILE_NAME, DiskQueue
from fieldbrook.device.errors import QueueBusyError, QueueError, QueueFullError
from fieldbrook.device.event import Event, make_event

OpenQueue = Callable[..., DiskQueue]


@pytest.fixture
def open_queue(tmp_path: Path) -> Iterator[OpenQueue]:
    opened: list[DiskQueue] = []

    def open_it(
        folder: str = "queue", events: int = 100, size: int = 100_000, *, sync: bool = True
    ) -> DiskQueue:
        opened.append(DiskQueue(tmp_path / folder, events, size, sync=sync))
        return opened[-1]

    yield open_it
    for queue in opened:
        queue.close()


def event(number: int, payload: bytes = b"") -> Event:
    return make_event("HEAT", payload or b"%d" % number, f"event-number-{number:05}")


def payloads(queue: DiskQueue) -> list[bytes]:
    return [queued.event.payload for queued in queue.first(1_000, 1 << 30)]


@pytest.mark.parametrize("sync", [True, False])
def test_what_was_added_is_there_in_order_when_the_queue_is_opened_again(
    open_queue: OpenQueue, sync: bool
) -> None:
    queue = open_queue(sync=sync)
    events = [event(number) for number in range(5)]
    for each in events:
        queue.add(each)
    queue.close()
    again = open_queue(sync=sync)
    assert [queued.event for queued in again.first(100, 1 << 20)] == events
    assert again.waiting == 5


def test_a_copy_of_the_files_at_any_moment_holds_what_was_added(
    open_queue: OpenQueue, tmp_path: Path
) -> None:
    """Like the files of a killed process, which has closed nothing."""
    queue = open_queue()
    for number in range(3):
        queue.add(event(number))
        shutil.copytree(tmp_path / "queue", tmp_path / f"copy{number}")
        assert open_queue(f"copy{number}").waiting == number + 1


def test_a_second_opener_is_told_that_the_queue_is_in_use(open_queue: OpenQueue) -> None:
    open_queue()
    with pytest.raises(QueueBusyError):
        open_queue()


def test_settled_events_leave_the_queue_and_refused_ones_are_kept_apart(
    open_queue: OpenQueue,
) -> None:
    queue = open_queue()
    for number in range(4):
        queue.add(event(number))
    numbers = [queued.number for queued in queue.first(10, 1 << 20)]
    queue.settle([numbers[0]], [(numbers[2], "404 Nobody")])
    assert payloads(queue) == [b"1", b"3"]
    assert queue.waiting == 2
    queue.close()
    again = open_queue()
    assert [(each.event.payload, each.refused) for each in again.refused()] == [
        (b"2", "404 Nobody")
    ]
    assert again.restore_refused() == 1
    assert payloads(again) == [b"1", b"2", b"3"]
    assert (again.waiting, again.refused()) == (3, [])


@pytest.mark.parametrize("limits", [(3, 100_000), (100, 3 * event(0, b"x" * 500).size_bytes)])
def test_a_full_queue_refuses_and_keeps_what_it_has(
    open_queue: OpenQueue, limits: tuple[int, int]
) -> None:
    queue = open_queue("queue", *limits)
    for number in range(3):
        queue.add(event(number, b"x" * 500))
    with pytest.raises(QueueFullError):
        queue.add(event(3, b"x" * 500))
    assert queue.waiting == 3
    assert queue.add(event(4, b"y" * 500), drop_oldest=True) == 1
    assert payloads(queue)[-1] == b"y" * 500
    assert queue.waiting == 3


def test_refused_events_make_room_before_any_other(open_queue: OpenQueue) -> None:
    queue = open_queue("queue", 3)
    for number in range(3):
        queue.add(event(number))
    numbers = [queued.number for queued in queue.first(10, 1 << 20)]
    queue.settle([], [(numbers[1], "no")])
    assert queue.add(event(3)) == 0
    assert payloads(queue) == [b"0", b"2", b"3"]
    assert queue.refused() == []


def test_an_event_larger_than_the_whole_queue_drops_nothing(open_queue: OpenQueue) -> None:
    queue = open_queue("queue", 10, 1_000)
    queue.add(event(0))
    with pytest.raises(QueueFullError, match="whole queue"):
        queue.add(event(1, b"x" * 1_000), drop_oldest=True)
    assert payloads(queue) == [b"0"]


def test_a_batch_has_at_least_one_event_however_large(open_queue: OpenQueue) -> None:
    queue = open_queue()
    for number in range(3):
        queue.add(event(number, b"x" * 1_000))
    assert len(queue.first(10, 1)) == 1
    assert len(queue.first(2, 1 << 20)) == 2
    assert len(queue.first(10, 2 * event(0, b"x" * 1_000).size_bytes)) == 2


def test_a_damaged_file_or_one_of_a_later_version_is_an_error_that_says_so(
    open_queue: OpenQueue, tmp_path: Path
) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / FILE_NAME).write_bytes(b"no database" * 1_000)
    with pytest.raises(QueueError, match="not a database"):
        open_queue("damaged")
    (tmp_path / "later").mkdir()
    database = sqlite3.connect(tmp_path / "later" / FILE_NAME)
    database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(QueueError, match="later version"):
        open_queue("later")
    (tmp_path / "file").touch()
    with pytest.raises(QueueError, match="cannot open"):
        open_queue("file")


def test_a_full_disk_keeps_what_there_is_and_goes_on_when_there_is_room(
    open_queue: OpenQueue,
) -> None:
    queue = open_queue("queue", 1_000, 1 << 30)
    database = queue._database  # where the size of the disk can be limited in SQLite
    database.execute("PRAGMA max_page_count=12")
    added = 0
    with pytest.raises(QueueError, match="full"):
        for number in range(1_000):
            queue.add(event(number, b"x" * 2_000))
            added += 1
    assert 0 < added < 1_000
    assert queue.waiting == len(payloads(queue)) == added
    sent = [queued.number for queued in queue.first(3, 1 << 20)]
    queue.settle(sent, [])
    queue.add(event(added, b"y"))
    assert queue.waiting == len(payloads(queue)) == added - 2
    assert payloads(queue)[-1] == b"y"


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 40)),
            st.tuples(st.just("drop"), st.integers(1, 40)),
            st.tuples(st.just("settle"), st.integers(0, 3)),
            st.tuples(st.just("refuse"), st.integers(0, 3)),
            st.tuples(st.just("open"), st.just(0)),
        ),
        max_size=30,
    )
)
def test_the_queue_does_what_a_list_would_do(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("queue")
    limit_events, limit_bytes = 5, 1_200
    queue = DiskQueue(folder, limit_events, limit_bytes, sync=False)
    waiting: list[bytes] = []
    refused: list[bytes] = []
    size = event(0).size_bytes - len(event(0).payload)

    def used() -> int:
        return sum(size + len(each) for each in (*waiting, *refused))

    for number, (step, value) in enumerate(steps):
        first = queue.first(value, 1 << 20) if step in ("settle", "refuse") else []
        if step in ("add", "drop"):
            payload = (b"%d" % number).ljust(value, b".")
            is_full = False
            while (
                len(waiting) + len(refused) >= limit_events
                or used() + size + len(payload) > limit_bytes
            ):
                if refused:
                    refused.pop(0)
                elif step == "drop":
                    waiting.pop(0)
                else:
                    is_full = True
                    break
            if is_full:
                with pytest.raises(QueueFullError):
                    queue.add(event(number, payload))
                refused = [each.event.payload for each in queue.refused()]
            else:
                queue.add(event(number, payload), drop_oldest=step == "drop")
                waiting.append(payload)
        elif step == "settle":
            queue.settle([each.number for each in first], [])
            del waiting[: len(first)]
        elif step == "refuse":
            queue.settle([], [(each.number, "no") for each in first])
            refused.extend(waiting[: len(first)])
            del waiting[: len(first)]
        else:
            queue.close()
            queue = DiskQueue(folder, limit_events, limit_bytes, sync=False)
        assert payloads(queue) == waiting
        assert [each.event.payload for each in queue.refused()] == refused
        assert queue.waiting == len(waiting)
    queue.close()
