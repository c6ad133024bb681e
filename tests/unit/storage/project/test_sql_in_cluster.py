"""SQL writes in the records of a cluster: another host that repeats them has the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fieldbrook.core.errors import JournalDamagedError, StatementError, StoreError
from fieldbrook.storage.journal.protocol import Record
from fieldbrook.storage.journal.unapplied import apply_records
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.storage.sql.sqlite import files as sql
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from fieldbrook.storage.sql.sqlite.transfer import export_rows
from tests.contract.sql.databases import ENDLESS, READINGS, column, config, request

MAP_BYTES = 1 << 20
PROJECT = 7
KEY = b"key"
INSERT = "INSERT INTO t_reading (f_device, f_value, f_at) VALUES (?, ?, now())"


class Stream:
    """The records that the hosts of a cluster have stored; `fails` refuses the next ones."""

    is_complete = True

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.fails = False
        self._waiting: list[Record] = []

    def add(self, project_id: int, number: int, batch: bytes) -> None:
        self._waiting = [Record(project_id, number, batch)]

    def sync(self) -> None:
        if self.fails:
            raise StoreError(reason="no majority")
        self.records += self._waiting

    def release(self, project_id: int, number: int) -> None:
        pass


class Host:
    """A host that owns the project: its folder brought up to date, and opened."""

    def __init__(
        self, folder: Path, stream: Stream, *tables: dict[str, Any], limits: SqlLimits | None = None
    ) -> None:
        self.stream, self.folder = stream, folder
        self.store = ProjectStore(folder, MAP_BYTES, journal=stream, project_id=PROJECT)
        apply_records(self.store, stream.records)
        tables = tables or (READINGS,)
        self.sql = SqliteDatabase(folder / sql.FILE, config(*tables), limits, is_replicated=True)

    def event(self, *requests: bytes, fails: bool = False) -> None:
        self.sql.begin_event()
        for each in requests:
            self.sql.execute(each)
        if fails:
            self.sql.undo_event()
        else:
            self.sql.keep_event()

    def insert(self, *devices: str) -> None:
        """A batch with an event for each device."""
        for device in devices:
            self.event(request(INSERT, {"string": device}, {"float64": 1.5}))
            self.store.overlay[KEY] = device.encode()
        self.store.commit(self.sql)

    def rows(self) -> list[Any]:
        return list(export_rows(self.folder / sql.FILE))

    def devices(self) -> list[str]:
        return [values[columns.index("f_device")] for _, columns, values in self.rows()]

    def end(self) -> None:
        """Leave the project as a process that is killed does."""
        self.sql.close()
        self.store._waiting.since = float("inf")
        self.store._stored.close()


@pytest.fixture
def stream() -> Stream:
    return Stream()


def test_another_host_gets_the_same_rows_and_keys(tmp_path: Path, stream: Stream) -> None:
    one = Host(tmp_path / "one", stream)
    one.insert("a", "b")
    one.event(request("UPDATE t_reading SET f_value = random(), f_on = true"))
    one.event(request("DELETE FROM t_reading"), fails=True)
    one.event(
        request("INSERT INTO t_reading (f_device, f_amount) VALUES (?, 2.50)", {"string": "c"})
    )
    one.store.commit(one.sql)
    one.event(request("DELETE FROM t_reading WHERE f_device = ?", {"string": "a"}))
    one.store.commit(one.sql)
    two = Host(tmp_path / "two", stream)
    assert two.rows() == one.rows()
    assert two.devices() == ["b", "c"]
    assert two.store.read(KEY) == b"b"
    two.insert("d")
    three = Host(tmp_path / "three", stream)
    assert three.rows() == two.rows()
    assert three.sql.number() == two.sql.number() == 4


def test_records_that_the_file_contains_are_not_repeated(tmp_path: Path, stream: Stream) -> None:
    one = Host(tmp_path / "one", stream)
    one.insert("a")
    one.insert("b")
    one.end()  # the file has both batches, and the store none
    again = Host(tmp_path / "one", stream)
    assert again.devices() == ["a", "b"]
    assert again.store.read(KEY) == b"b"


def test_writes_whose_record_is_stored_are_repeated_after_a_crash_before_their_commit(
    tmp_path: Path, stream: Stream
) -> None:
    one = Host(tmp_path / "one", stream)
    one.insert("a")
    one.event(request(INSERT, {"string": "b"}, {"float64": 2.0}))
    assert one.store.prepare(one.sql)
    stream.sync()
    one.end()
    assert one.devices() == ["a"]
    again = Host(tmp_path / "one", stream)
    assert again.devices() == ["a", "b"]
    again.insert("c")
    assert Host(tmp_path / "two", stream).rows() == again.rows()


def test_writes_whose_record_is_not_stored_did_not_happen(tmp_path: Path, stream: Stream) -> None:
    one = Host(tmp_path / "one", stream)
    one.insert("a")
    stream.fails = True
    one.event(request(INSERT, {"string": "b"}, {"float64": 2.0}))
    with pytest.raises(StoreError, match="no majority"):
        one.store.commit(one.sql)
    one.store.dropped()
    stream.fails = False
    one.insert("c")
    assert one.devices() == ["a", "c"]
    assert Host(tmp_path / "two", stream).rows() == one.rows()


def test_a_commit_that_fails_after_its_record_is_repeated_when_the_store_is_opened_again(
    tmp_path: Path, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Host(tmp_path / "one", stream)
    one.insert("a")

    def fail(number: int) -> None:
        raise StoreError(reason=f"no space for batch {number}")

    monkeypatch.setattr(one.sql, "commit", fail)
    with pytest.raises(StoreError, match="no space for batch 2"):
        one.insert("b")
    assert one.store.number == 1
    one.store.dropped()
    one.store.checkpoint()
    one.end()
    again = Host(tmp_path / "one", stream)
    assert again.devices() == ["a", "b"]
    assert again.store.number == 2


def test_tables_are_made_in_the_order_of_the_batches(tmp_path: Path, stream: Stream) -> None:
    narrow = {"name": "t", "cols": [column("a", "INT64")]}
    wide = {"name": "t", "cols": [column("a", "INT64"), column("b", "INT64", default="5")]}
    one = Host(tmp_path / "one", stream, narrow)
    one.event(request("INSERT INTO t VALUES (1)"))
    one.store.commit(one.sql)
    one.sql.close()
    one.store.close()
    two = Host(tmp_path / "two", stream, wide)
    two.event(request("INSERT INTO t VALUES (2, 3)"))
    two.store.commit(two.sql)
    for name in ("one", "new"):
        host = Host(tmp_path / name, stream, wide)
        assert [row[2] for row in host.rows()] == [[1, 5], [2, 3]]
        host.event(request("UPDATE t SET b = 1"))
        host.sql.rollback()


def test_an_event_that_only_reads_makes_the_tables_for_all_hosts(
    tmp_path: Path, stream: Stream
) -> None:
    one = Host(tmp_path / "one", stream)
    one.sql.begin_event()
    assert one.sql.query(request("SELECT count(*) AS n FROM t_reading")) == b'{"n":0}'
    one.sql.keep_event()
    one.store.commit(one.sql)
    assert one.sql.number() == 1
    two = Host(tmp_path / "two", stream)
    two.insert("a")
    assert [columns[1] for _, columns, _ in two.rows()] == ["f_device"]


def test_tables_of_a_batch_that_failed_are_made_by_the_next_one(
    tmp_path: Path, stream: Stream
) -> None:
    one = Host(tmp_path / "one", stream)
    one.event(request(INSERT, {"string": "a"}, {"float64": 2.0}))
    one.sql.rollback()
    one.insert("b")
    assert Host(tmp_path / "two", stream).devices() == ["b"]


def test_an_interrupted_statement_costs_neither_the_tables_nor_earlier_writes(
    tmp_path: Path, stream: Stream
) -> None:
    limits = SqlLimits(statement_ms=50)
    one = Host(tmp_path / "one", stream, limits=limits)
    one.event(request(INSERT, {"string": "a"}, {"float64": 2.0}))
    one.sql.begin_event()
    endless = f"INSERT INTO t_reading (f_device) {ENDLESS} SELECT n FROM x"
    with pytest.raises(StatementError, match="time limit"):
        one.sql.execute(request(endless))
    one.sql.undo_event()
    one.store.commit(one.sql)
    assert Host(tmp_path / "two", stream).rows() == one.rows()
    assert one.devices() == ["a"]


def test_a_copy_of_the_store_has_the_rows_up_to_its_last_batch(
    tmp_path: Path, stream: Stream
) -> None:
    one = Host(tmp_path / "one", stream)
    one.insert("a")
    one.store.checkpoint()
    (tmp_path / "copy").mkdir()
    before = one.store.copied_bytes
    one.store.copy_to(tmp_path / "copy")
    assert before > one.store.used_bytes
    stream.records.clear()
    one.insert("b")
    two = Host(tmp_path / "copy", stream)
    assert two.rows() == one.rows()
    assert two.devices() == ["a", "b"]


def test_a_file_that_has_lost_batches_is_damage(tmp_path: Path, stream: Stream) -> None:
    one = Host(tmp_path / "one", stream)
    one.insert("a")
    two = Host(tmp_path / "two", stream)
    two.store.close()
    for path in (tmp_path / "two").glob("sql.db*"):
        path.unlink()
    one.insert("b")
    with pytest.raises(JournalDamagedError, match="batch 2 of the database, and the file ends wi"):
        Host(tmp_path / "two", stream)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM t_reading",
        "UPDATE t_reading SET f_device = 'b'",
        "DROP TABLE t_reading",
    ],
)
def test_a_write_with_another_result_on_another_host_is_damage(
    tmp_path: Path, stream: Stream, change: str
) -> None:
    one = Host(tmp_path / "one", stream)
    one.insert("a")
    two = Host(tmp_path / "two", stream)
    two.store.close()
    with sql.connection_to(tmp_path / "two" / sql.FILE) as connection:
        connection.create_collation("fieldbrook_decimal", lambda _a, _b: 0)
        connection.execute(change)
    one.event(
        request("UPDATE t_reading SET f_count = 8"),
        request(INSERT, {"string": "b"}, {"float64": 2.0}),
        request("DELETE FROM t_reading WHERE f_device = 'a'"),
    )
    one.store.commit(one.sql)
    with pytest.raises(JournalDamagedError, match="rows instead of|cannot be repeated"):
        Host(tmp_path / "two", stream)
    with sql.snapshot(tmp_path / "two" / sql.FILE) as found:
        assert found.number == 1, "nothing of the batch is in the file"
