"""Copies of a project's store and SQL database at the same moment."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from fieldbrook.storage.backup import copies
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.sql.sqlite import files as sql
from tests.unit.storage.backup.data_folder import MAP, project_folder


def test_a_project_that_is_removed_right_after_its_store_was_read_is_left_out(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_both = copies._copy_both

    def remove_afterwards(environment: lmdb.Environment, database: Path, target: Path) -> bool:
        copied = copy_both(environment, database, target)
        shutil.rmtree(database.parent)
        return copied

    monkeypatch.setattr(copies, "_copy_both", remove_afterwards)
    assert not copies.copy_project(project_folder(data), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


_BATCHES = """
import sys
from pathlib import Path
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase

folder = Path(sys.argv[1])
column = {"name": "f_n", "constrains": {"datatype": "INT64"}}
tables = [{"name": "t_n", "cols": [column]}]
database = SqliteDatabase(folder / "sql.db", {"schemas": [{"schema": "public", "tables": tables}]})
store = ProjectStore(folder, 1 << 24, database.number)
key = kv.stored_key(kv.scope(7), b"count")
number = 0
print("ready", flush=True)
while True:
    number += 1
    database.begin_event()
    request = b'{"statement":"INSERT INTO t_n (f_n) VALUES (?)","params":[{"int64":%d}]}' % number
    database.execute(request)
    database.keep_event()
    store.overlay[key] = str(number).encode()
    store.commit(database)
"""


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that commits to both stores of a project without a pause."""
    command = [sys.executable, "-c", _BATCHES, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline()
            yield writer
        finally:
            writer.kill()


def test_a_copy_of_both_stores_of_a_project_is_always_of_one_moment(tmp_path: Path) -> None:
    source = tmp_path / "p"
    with writing(source):
        seen = []
        for number in range(60):
            copy = tmp_path / f"c{number}"
            assert copies.copy_project(source, copy)
            seen.append(_agreed(copy))
    assert seen == sorted(seen)
    assert seen[-1] > seen[0], "the writer wrote nothing meanwhile"


def _agreed(copy: Path) -> int:
    """Return the numbers in both stores of the copy, opened like the node opens them."""
    store = ProjectStore(copy, MAP)
    value = int(store.read(kv.stored_key(kv.scope(7), b"count")) or b"0")
    store.close()
    if not (copy / "sql.db").exists():
        assert value == 0
        return 0
    connection = sqlite3.connect(copy / "sql.db")
    try:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        rows = connection.execute("SELECT count(*), max(f_n) FROM t_n") if "t_n" in tables else None
        count, newest = rows.fetchone() if rows else (0, None)
    finally:
        connection.close()
    assert count == (newest or 0) == value
    return value


def test_a_project_that_commits_without_a_pause_is_held_up_for_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "p"
    monkeypatch.setattr(copies, "_ATTEMPTS", 0)
    with writing(source) as writer:
        while not sql.is_initialized(source / "sql.db"):
            assert writer.poll() is None
        for number in range(10):
            copy = tmp_path / f"c{number}"
            assert copies.copy_project(source, copy)
            _agreed(copy)
        assert writer.poll() is None
