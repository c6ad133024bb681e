"""Stores of projects are open only while they are read, and their number is limited."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fieldbrook.gateway.management.framework.open_stores import OpenStores
from fieldbrook.storage.project.history.search import EventFilter
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import ProjectStore, store_path

LIMIT = 2


@pytest.fixture
def stores(tmp_path: Path) -> OpenStores:
    for project_id in range(1, 5):
        ProjectStore(store_path(tmp_path, project_id), 1 << 20).close()
    return OpenStores(tmp_path, LIMIT)


def open_files(folder: Path) -> int:
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found += entry.readlink() == folder / "data.mdb"
        except FileNotFoundError:
            continue  # the descriptor of the folder itself
    return found


def get(stores: OpenStores, project_id: int) -> ProjectStoreReader:
    found = stores.get(project_id)
    assert found is not None
    return found


def test_a_store_is_opened_once_and_one_that_is_not_there_is_none(stores: OpenStores) -> None:
    assert get(stores, 1) is get(stores, 1)
    assert stores.get(9) is None


def test_the_one_that_was_not_asked_for_the_longest_is_closed(
    stores: OpenStores, tmp_path: Path
) -> None:
    for project_id in (1, 2, 1, 3):
        get(stores, project_id)
    assert [open_files(store_path(tmp_path, n)) for n in (1, 2, 3)] == [1, 0, 1]


def test_a_removed_projects_store_is_closed(stores: OpenStores, tmp_path: Path) -> None:
    get(stores, 1)
    stores.drop(1)
    stores.drop(1)
    assert open_files(store_path(tmp_path, 1)) == 0


def test_a_store_that_somebody_reads_in_stays_open_and_is_the_one_that_is_given_again(
    stores: OpenStores, tmp_path: Path
) -> None:
    store = get(stores, 1)
    for project_id in (2, 3, 4):
        get(stores, project_id)
    assert store.logs(0, 10) == []
    assert get(stores, 1) is store
    stores.drop(1)
    assert store.logs(0, 10) == []
    del store
    assert open_files(store_path(tmp_path, 1)) == 0


def test_searches_in_threads_are_not_disturbed_by_stores_that_come_and_go(
    stores: OpenStores,
) -> None:
    def search(store: ProjectStoreReader) -> None:
        for _ in range(20):
            store.find_events(EventFilter(), 0, 10)
            store.logs(0, 10)

    with ThreadPoolExecutor(1) as threads:
        for number in range(100):
            project_id = number % 4 + 1
            searched = threads.submit(search, get(stores, project_id))
            stores.drop(project_id)
            get(stores, (number + 1) % 4 + 1)
            searched.result()
