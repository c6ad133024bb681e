"""Reads of a project's store by threads that do not own it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.journal.memory import MemoryJournal
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.store import ProjectStore

KEY = kv.stored_key(kv.scope(7), b"k")
COMMITS = 200


def test_other_threads_see_whole_values_of_one_commit_after_another_until_the_store_is_closed(
    tmp_path: Path,
) -> None:
    journal = MemoryJournal()
    journal.begin()
    store = ProjectStore(tmp_path / "p", 1 << 20, journal=journal)
    seen: list[list[int]] = [[], []]

    def look(into: list[int]) -> None:
        while True:
            try:
                value = store.read_committed(KEY) or b""
            except StoreError:
                return  # it is closed
            assert value == value[:3] * (len(value) // 3)
            into.append(int(value[:3] or b"-1"))

    threads = [threading.Thread(target=look, args=(into,)) for into in seen]
    for thread in threads:
        thread.start()
    for number in range(COMMITS):
        store.overlay[KEY] = b"%03d" % number * 500
        store.commit()
        assert (store.read_committed(KEY) or b"")[:3] == b"%03d" % number
        if number % 3 == 0:
            store.checkpoint()
    store.close()
    for thread in threads:
        thread.join()
    assert all(into and into == sorted(into) for into in seen)


def test_a_value_of_the_batch_under_way_is_not_committed(tmp_path: Path) -> None:
    store = ProjectStore(tmp_path / "p", 1 << 20)
    store.overlay[KEY] = b"1"
    assert store.read_committed(KEY) is None
    store.commit()
    store.overlay[KEY] = None
    assert store.read_committed(KEY) == b"1"
    store.commit()
    assert store.read_committed(KEY) is None
    store.close()
    with pytest.raises(StoreError):
        store.read_committed(KEY)
