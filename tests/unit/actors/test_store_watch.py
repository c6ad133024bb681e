"""A store that has refused a write is tried until it accepts one again."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import lmdb
import pytest

from fieldbrook.actors import store_watch
from fieldbrook.actors.store_watch import StoreWatch
from fieldbrook.core.errors import StoreError
from fieldbrook.observability import health
from fieldbrook.observability.health import ProcessHealth
from fieldbrook.storage.lmdb.condition import store_condition
from fieldbrook.storage.lmdb.environment import store_error, store_errors
from fieldbrook.storage.project.store import ProjectStore


def raised(cause: Exception) -> StoreError:
    """Return the error in the form of the storage package."""
    try:
        raise StoreError(reason=str(cause)) from cause
    except StoreError as error:
        return error


def of_sqlite(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("cause", "state"),
    [
        (lmdb.MapFullError("full"), health.STORE_FULL),
        (lmdb.CorruptedError("bad"), health.UNREADABLE),
        (lmdb.InvalidError("foreign"), health.UNREADABLE),
        (OSError(errno.ENOSPC, "no space"), health.DISK_FULL),
        (OSError(errno.EDQUOT, "quota"), health.DISK_FULL),
        (OSError(errno.EIO, "input/output"), health.DISK_FULL),
        (OSError(errno.EACCES, "denied"), health.UNREADABLE),
        (OSError(errno.EINTR, "odd"), health.STORE_FAILS),
        (of_sqlite(sqlite3.SQLITE_FULL), health.DISK_FULL),
        (of_sqlite(sqlite3.SQLITE_CORRUPT), health.UNREADABLE),
        (of_sqlite(sqlite3.SQLITE_BUSY), health.STORE_FAILS),
    ],
)
def test_each_cause_has_its_state(cause: Exception, state: str) -> None:
    assert store_condition(raised(cause)) == state


def test_what_has_no_cause_is_a_failure_all_the_same() -> None:
    assert store_condition(store_error(None, OSError(errno.EINTR, "x"))) == health.STORE_FAILS


def test_a_full_store_is_a_condition_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_watch, "_PROBE_INTERVAL_S", 0.0)
    store = ProjectStore(tmp_path, 1 << 20)
    reporter = ProcessHealth()
    watch = StoreWatch(reporter, store)
    watch.probe()
    keys = 0
    with pytest.raises(StoreError) as caught:
        for keys in range(1_000):
            store.overlay[b"%06d" % keys] = bytes(16_384)
            store.commit()
    watch.failed(caught.value, 16_384)
    assert health.STORE_FULL in reporter
    watch.probe()
    assert health.STORE_FULL in reporter
    for key in range(keys):
        store.overlay[b"%06d" % key] = b""
        try:
            store.commit()
        except StoreError:  # at first there is no page for a copy
            continue
    watch.probe()
    assert not reporter.has_conditions
    store.close()


def test_a_registry_is_tried_in_the_same_way(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught, store_errors(tmp_path):
        raise lmdb.DiskError("no space")
    assert store_condition(caught.value) == health.DISK_FULL
