"""A batch in two stores, key-value pairs and SQL: cut anywhere, it is in both or in none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.errors import StoreError
from fieldbrook.storage import project_store, sql
from fieldbrook.storage.dead_letters import DeadLetter
from fieldbrook.storage.history import find_events, remembered
from fieldbrook.storage.outbox import MQTT, OutboxEntry
from fieldbrook.storage.project_store import LogRow, MetricRow, ProjectStore
from fieldbrook.storage.sql import SqlDatabase

ROOT = Path(__file__).parents[3]
CONFIG = {"tables": [{"name": "t", "cols": [{"name": "n", "constrains": {"datatype": "INT64"}}]}]}
KEY = b"number"
MAP_BYTES = 1 << 20
LAST = 3  # the batch that is cut; those before are whole


class Project:
    """The two stores as a project's data thread uses them."""

    def __init__(self, path: Path) -> None:
        self.store = ProjectStore(path, MAP_BYTES)
        self.sql = SqlDatabase(path / sql.FILE, CONFIG)

    def batch(self, number: int, size: int = 1) -> None:
        """Put a number into both and commit."""
        self.sql.begin_event()
        statement = b'{"statement":"INSERT INTO t (n) VALUES (?)","params":[{"int64":%d}]}' % number
        self.sql.execute(statement)
        self.sql.keep_event()
        self.store.overlay[KEY] = b"%d" % number
        if size > 1:
            self.store.overlay[b"big"] = bytes(size)
        text = str(number)
        self.store.sent.append(OutboxEntry(MQTT, "t", text.encode(), "e", "a", 1, 0))
        self.store.failed.append(
            DeadLetter(0, "e", "DEFAULT", 1, b"", 0, 1, 1, "a", "start", "failed")
        )
        self.store.record([remembered("DEFAULT", 1, text, b"", 0, 0, ())])
        self.store.measured.append(MetricRow(0, 1, "a", "e", text))
        self.store.log(LogRow(0, 4, "wasmCode", 1, "a", "e", text))
        self.store.commit(self.sql)

    def numbers(self) -> tuple[int, int]:
        """What each store says the last number is; 0 for none."""
        self.sql.begin_event()
        row = self.sql.query(b'{"statement":"SELECT max(n) m, count(*) c FROM t","params":[]}')
        self.sql.keep_event()
        self.sql.rollback()
        text = row.decode().replace("null", "0")
        count, last = (int(part.split(":")[1].strip("}")) for part in text.split(","))
        assert count == last, "a batch is missing or there twice"
        key = int(self.store.read(KEY) or 0)
        assert [int(entry.body) for _, entry in self.store.outbox.first(99)] == [*range(1, key + 1)]
        with self.store._environment.begin() as txn:
            measured = self.store._metrics.after(txn, 0, 99)
            events = find_events(txn, self.store._history, None, 99)
        assert sorted(int(event.event_id) for event in events) == [*range(1, key + 1)]
        assert len(self.store._dead) == key
        assert [int(row.value) for _, row in measured] == [*range(1, key + 1)]
        return key, last

    def close(self) -> None:
        self.sql.close()
        self.store.close()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    opened = Project(tmp_path / "p")
    yield opened
    opened.close()


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _before(owner: Any, name: str, then: Callable[[], None]) -> None:
    original = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        then()
        return original(*arguments, **named)

    setattr(owner, name, call)


def _after(owner: Any, name: str, then: Callable[[], None]) -> None:
    original = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        then()
        return result

    setattr(owner, name, call)


def _at_statement(project: Project, statement: str, then: Callable[[], None]) -> None:
    assert project.sql._connection is not None

    def look(text: str) -> None:
        if text.startswith(statement):
            then()

    project.sql._connection.set_trace_callback(look)


CUTS: dict[str, tuple[Callable[[Project, Callable[[], None]], None], bool]] = {
    "before the stage is written": (lambda p, then: _before(p.store, "_put_stage", then), False),
    "after the stage is written": (lambda p, then: _after(p.store, "_put_stage", then), False),
    "before the number is written": (lambda p, then: _at_statement(p, "UPDATE", then), False),
    "before the SQL commit": (lambda p, then: _at_statement(p, "COMMIT", then), False),
    "after the SQL commit": (lambda p, then: _after(p.sql, "commit", then), True),
    "before the stage is applied": (lambda p, then: _before(p.store, "_apply", then), True),
    "while the stage is applied": (lambda p, then: _after(p.store, "_put", then), True),
    "after the stage is applied": (lambda p, then: _after(p.store, "_apply", then), True),
}
AT_STATEMENTS = ("before the number is written", "before the SQL commit")


def child(path: str, cut: str) -> None:
    """Commit batches, and be killed within the last."""
    project_store._LOG_FLUSH_S = 0.0
    project = Project(Path(path))
    for number in range(1, LAST):
        project.batch(number)
    CUTS[cut][0](project, _die)
    project.batch(LAST)
    raise AssertionError("it should not have lived so long")


@pytest.mark.parametrize("cut", CUTS)
def test_a_process_killed_within_a_commit_leaves_both_stores_agreeing(
    tmp_path: Path, cut: str
) -> None:
    path = tmp_path / "p"
    code = f"from tests.unit.storage.test_sql_commit import child; child({str(path)!r}, {cut!r})"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    expected = LAST if CUTS[cut][1] else LAST - 1
    for _ in range(2):  # recovery is done once and for all
        project = Project(path)
        assert project.numbers() == (expected, expected)
        project.close()
    project = Project(path)
    project.batch(expected + 1)
    assert project.numbers() == (expected + 1, expected + 1)
    project.close()


@pytest.mark.parametrize("cut", CUTS)
def test_a_step_that_fails_leaves_both_stores_agreeing_without_a_restart(
    project: Project, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        assert project.sql._connection is not None
        project.sql._connection.interrupt()

    monkeypatch.setattr(project_store, "_LOG_FLUSH_S", 0.0)
    for number in range(1, LAST):
        project.batch(number)
    place, happened = CUTS[cut]
    # What looks at statements cannot raise.
    place(project, interrupt if cut in AT_STATEMENTS else _fail)
    with pytest.raises(StoreError):
        project.batch(LAST)
    for owner in (project.store, project.sql):
        for name in ("_put_stage", "_apply", "_put", "commit"):
            vars(owner).pop(name, None)
    expected = LAST if happened else LAST - 1
    assert project.numbers() == (expected, expected)
    project.batch(expected + 1)
    assert project.numbers() == (expected + 1, expected + 1)


def test_a_batch_that_does_not_fit_the_store_is_in_neither(project: Project) -> None:
    project.batch(1)
    with pytest.raises(StoreError, match="size limit"):
        project.batch(2, size=2 * MAP_BYTES)
    assert project.numbers() == (1, 1)
    project.batch(2)
    assert project.numbers() == (2, 2)


def test_a_batch_that_fits_only_as_a_stage_is_applied_beyond_the_limit(project: Project) -> None:
    project.batch(1)
    project.batch(2, size=MAP_BYTES * 6 // 10)
    assert project.numbers() == (2, 2)
    assert len(project.store.read(b"big") or b"") == MAP_BYTES * 6 // 10
    project.batch(3)
    assert project.numbers() == (3, 3)


def test_a_stage_of_a_number_that_was_used_again_is_not_applied(project: Project) -> None:
    project.batch(1)
    _after(project.store, "_put_stage", _fail)
    with pytest.raises(StoreError):
        project.batch(2)
    vars(project.store).pop("_put_stage")
    project.sql.begin_event()
    project.sql.execute(b'{"statement":"INSERT INTO t (n) VALUES (2)","params":[]}')
    project.sql.keep_event()
    project.store.commit(project.sql)
    assert project.store.read(KEY) == b"1"


def test_a_batch_that_only_reads_sql_is_committed_in_one_step(project: Project) -> None:
    project.batch(1)
    project.sql.begin_event()
    project.sql.query(b'{"statement":"SELECT 1","params":[]}')
    project.sql.keep_event()
    project.store.overlay[KEY] = b"5"
    _before(project.store, "_put_stage", _fail)
    project.store.commit(project.sql)
    assert project.store.read(KEY) == b"5"
    assert project.sql.number() == 1


def test_a_batch_whose_sql_writes_were_lost_is_refused_whole(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.batch(1)
    project.sql.begin_event()
    project.sql.execute(b'{"statement":"INSERT INTO t (n) VALUES (2)","params":[]}')
    project.store.overlay[KEY] = b"2"
    project.sql._journal[0] = project.sql._journal[0]._replace(changed=2)
    monkeypatch.setattr(project.sql, "_limits", sql.SqlLimits(statement_ms=-1000))
    endless = b"INSERT INTO t WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM x)"
    with pytest.raises(StoreError, match="otherwise"):
        project.sql.execute(b'{"statement":"%s SELECT n, 0, 0 FROM x","params":[]}' % endless)
    project.sql.undo_event()
    with pytest.raises(StoreError, match="lost"):
        project.store.commit(project.sql)
    monkeypatch.undo()
    assert project.numbers() == (1, 1)
    project.batch(2)
    assert project.numbers() == (2, 2)


def _fail() -> None:
    raise StoreError(reason="cut")
