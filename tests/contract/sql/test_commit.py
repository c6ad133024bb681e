"""A batch in two stores, key-value pairs and SQL: cut anywhere, it is in both or in none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fieldbrook.core.errors import DatabaseUnreachableError, StoreError
from fieldbrook.storage.project.commit import effects
from fieldbrook.storage.project.dead_letters import DeadLetter
from fieldbrook.storage.project.history.records import event_record
from fieldbrook.storage.project.history.search import EventFilter, find_events
from fieldbrook.storage.project.outbox import MQTT, OutboxEntry
from fieldbrook.storage.project.rows import LogRow, MetricRow
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.storage.sql.postgres.connection import ConnectionLostError
from fieldbrook.storage.sql.postgres.database import PostgresDatabase
from fieldbrook.storage.sql.postgres.namespace import committed_number, namespace_of
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from tests.contract.sql.databases import Backend, Database
from tests.support.nodes import until
from tests.support.postgres import PostgresServer
from tests.support.tools import LIMIT_S

ROOT = Path(__file__).parents[3]
CONFIG = {"tables": [{"name": "t", "cols": [{"name": "n", "constrains": {"datatype": "INT64"}}]}]}
KEY = b"number"
MAP_BYTES = 1 << 20
GIVEN_UP_S = 15  # many times what it takes; who waits for each event needs longer
LAST = 3  # the batch that is cut; those before are whole


class Project:
    """Both stores, used like in a project's data thread."""

    def __init__(self, path: Path, backend: Backend) -> None:
        self.store = ProjectStore(path, MAP_BYTES, lambda: backend.committed(path))
        self.sql: Database = backend.database(path, CONFIG)

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
        self.store.dead_letters.append(
            DeadLetter(0, "e", "DEFAULT", 1, b"", 0, 1, 1, "a", "start", "failed")
        )
        self.store.record([event_record(("DEFAULT", 1, text, b"", 0, 0, ""), 0, ())])
        self.store.metrics.append(MetricRow(0, 1, "a", "e", text))
        self.store.log(LogRow(0, 4, "wasmCode", 1, "a", "e", text))
        self.store.commit(self.sql)

    def numbers(self) -> tuple[int, int]:
        """Return the last number in each store; 0 for none."""
        self.sql.begin_event()
        row = self.sql.query(b'{"statement":"SELECT max(n) m, count(*) c FROM t","params":[]}')
        self.sql.keep_event()
        self.sql.rollback()
        text = row.decode().replace("null", "0")
        count, last = (int(part.split(":")[1].strip("}")) for part in text.split(","))
        assert count == last, "a batch is missing or there twice"
        key = int(self.store.read(KEY) or 0)
        assert [int(entry.body) for _, entry in self.store.outbox.first(99)] == [*range(1, key + 1)]
        with self.store._stored.environment.begin() as txn:
            measured = self.store._tables.metrics.after(txn, 0, 99)
            events = find_events(txn, self.store._tables.history, EventFilter(), 0, 99).rows
        assert sorted(int(event.record.event_id) for event in events) == [*range(1, key + 1)]
        assert self.store.dead_letter_count == key
        assert [int(row.value) for _, row in measured] == [*range(1, key + 1)]
        return key, last

    def close(self) -> None:
        self.sql.close()
        self.store.close()


@pytest.fixture
def project(tmp_path: Path, backend: Backend) -> Iterator[Project]:
    opened = Project(tmp_path / "p", backend)
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
    def look(text: str) -> None:
        if text.rpartition("; ")[2].startswith(statement):
            then()

    if isinstance(project.sql, SqliteDatabase):
        assert project.sql._connection is not None
        project.sql._connection.set_trace_callback(look)
    else:
        connection = project.sql._connection
        assert connection is not None
        run = connection.run

        def looked(text: str, ends_at: float) -> Any:
            look(text)
            return run(text, ends_at)

        connection.run = looked  # type: ignore[method-assign, assignment]


def _interrupt(project: Project) -> None:
    """Make the next SQL operation fail."""
    if isinstance(project.sql, SqliteDatabase):
        assert project.sql._connection is not None
        project.sql._connection.interrupt()
    else:
        assert project.sql._connection is not None
        project.sql._connection.close()


CUTS: dict[str, tuple[Callable[[Project, Callable[[], None]], None], bool]] = {
    "before the stage is written": (
        lambda p, then: _before(p.store._stored, "put_stage", then),
        False,
    ),
    "after the stage is written": (
        lambda p, then: _after(p.store._stored, "put_stage", then),
        False,
    ),
    "before the number is written": (lambda p, then: _at_statement(p, "UPDATE ", then), False),
    "before the SQL commit": (lambda p, then: _at_statement(p, "COMMIT", then), False),
    "after the SQL commit": (lambda p, then: _after(p.sql, "commit", then), True),
    "before the stage is applied": (lambda p, then: _before(p.store._stored, "apply", then), True),
    "while the stage is applied": (lambda p, then: _after(p.store._tables, "put", then), True),
    "after the stage is applied": (lambda p, then: _after(p.store._stored, "apply", then), True),
}
AT_STATEMENTS = ("before the number is written", "before the SQL commit")


def child(path: str, dsn: str, cut: str) -> None:
    """Commit batches, and get killed within the last."""
    effects._LOG_FLUSH_S = 0.0
    project = Project(Path(path), Backend(dsn))
    for number in range(1, LAST):
        project.batch(number)
    CUTS[cut][0](project, _die)
    project.batch(LAST)
    raise AssertionError("it should not have lived so long")


@pytest.mark.parametrize("cut", CUTS)
def test_a_process_killed_within_a_commit_leaves_both_stores_agreeing(
    tmp_path: Path, backend: Backend, cut: str
) -> None:
    path = tmp_path / "p"
    given = f"{str(path)!r}, {backend.dsn!r}, {cut!r}"
    code = f"from tests.contract.sql.test_commit import child; child({given})"
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
        project = Project(path, backend)
        assert project.numbers() == (expected, expected)
        project.close()
    project = Project(path, backend)
    project.batch(expected + 1)
    assert project.numbers() == (expected + 1, expected + 1)
    project.close()


@pytest.mark.parametrize("cut", CUTS)
def test_a_step_that_fails_leaves_both_stores_agreeing_without_a_restart(
    project: Project, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "_LOG_FLUSH_S", 0.0)
    for number in range(1, LAST):
        project.batch(number)
    place, happened = CUTS[cut]
    # What looks at statements cannot raise.
    place(project, (lambda: _interrupt(project)) if cut in AT_STATEMENTS else _fail)
    with pytest.raises(StoreError):
        project.batch(LAST)
    for owner in (project.store._stored, project.store._tables, project.sql):
        for name in ("put_stage", "apply", "put", "commit"):
            vars(owner).pop(name, None)
    expected = LAST if happened else LAST - 1
    assert project.numbers() == (expected, expected)
    project.batch(expected + 1)
    assert project.numbers() == (expected + 1, expected + 1)


def test_a_batch_that_does_not_fit_the_store_is_in_neither(project: Project) -> None:
    project.batch(1)
    with pytest.raises(StoreError, match="the store has room for"):
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
    _after(project.store._stored, "put_stage", _fail)
    with pytest.raises(StoreError):
        project.batch(2)
    vars(project.store._stored).pop("put_stage")
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
    _before(project.store._stored, "put_stage", _fail)
    project.store.commit(project.sql)
    assert project.store.read(KEY) == b"5"
    assert project.sql.number() == 1


def test_a_batch_whose_sql_writes_were_lost_is_refused_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path / "p", Backend())
    assert isinstance(project.sql, SqliteDatabase)
    project.batch(1)
    project.sql.begin_event()
    project.sql.execute(b'{"statement":"INSERT INTO t (n) VALUES (2)","params":[]}')
    project.store.overlay[KEY] = b"2"
    project.sql._journal[0] = replace(project.sql._journal[0], changed=2)
    monkeypatch.setattr(project.sql, "_limits", SqlLimits(statement_ms=-1000))
    endless = b"INSERT INTO t WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM x)"
    with pytest.raises(StoreError, match="a replayed write changed"):
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


# ---------------------------------------------------------------- a server that goes away


@pytest.fixture
def served(tmp_path: Path, postgres: PostgresServer) -> Iterator[Project]:
    opened = Project(tmp_path / "p", Backend(postgres.dsn))
    yield opened
    opened.close()


def _end_sessions(postgres: PostgresServer, project: Project) -> None:
    """Make the server end the project's session, as an operator or a restart would."""
    role = namespace_of(project.store.path)
    postgres.run(
        f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{role}'",
        postgres.owner_dsn,
    )


def _insert(project: Project, number: int) -> None:
    statement = b'{"statement":"INSERT INTO t (n) VALUES (?)","params":[{"int64":%d}]}' % number
    project.sql.begin_event()
    project.sql.execute(statement)
    project.sql.keep_event()


def test_a_session_that_ended_between_two_batches_is_not_noticed(
    served: Project, postgres: PostgresServer
) -> None:
    served.batch(1)
    _end_sessions(postgres, served)
    served.batch(2)
    assert served.numbers() == (2, 2)


def test_a_session_that_ends_within_a_batch_takes_the_whole_batch_along(
    served: Project, postgres: PostgresServer
) -> None:
    served.batch(1)
    _insert(served, 2)
    served.store.overlay[KEY] = b"2"
    _end_sessions(postgres, served)
    served.sql.begin_event()
    with pytest.raises(DatabaseUnreachableError):
        served.sql.query(b'{"statement":"SELECT 1","params":[]}')
    served.sql.undo_event()
    served.sql.begin_event()
    with pytest.raises(DatabaseUnreachableError, match="lost"):  # nor do those after it run alone
        served.sql.query(b'{"statement":"SELECT 1","params":[]}')
    served.sql.undo_event()
    with pytest.raises(DatabaseUnreachableError):
        served.store.commit(served.sql)
    assert served.numbers() == (1, 1)
    served.batch(2)
    assert served.numbers() == (2, 2)


def test_a_session_that_ends_before_anything_was_written_costs_one_event(
    served: Project, postgres: PostgresServer
) -> None:
    served.batch(1)
    served.sql.begin_event()
    served.sql.query(b'{"statement":"SELECT 1","params":[]}')
    _end_sessions(postgres, served)
    with pytest.raises(DatabaseUnreachableError):
        served.sql.query(b'{"statement":"SELECT 1","params":[]}')
    served.sql.undo_event()
    served.batch(2)
    assert served.numbers() == (2, 2)


@pytest.mark.parametrize("late", [False, True])
def test_a_commit_whose_answer_is_lost_is_decided_by_the_number(
    served: Project, late: bool
) -> None:
    served.batch(1)
    assert isinstance(served.sql, PostgresDatabase)
    connection = served.sql._connection
    assert connection is not None
    run = connection.run

    def cut(text: str, ends_at: float) -> Any:
        if text == "COMMIT":
            if late:  # it arrives, and nobody hears of it
                run(text, ends_at)
            connection._connection.close()
        return run(text, ends_at)

    connection.run = cut  # type: ignore[method-assign, assignment]
    with pytest.raises(DatabaseUnreachableError):
        served.batch(2)
    expected = 2 if late else 1
    assert served.numbers() == (expected, expected)
    served.batch(expected + 1)
    assert served.numbers() == (expected + 1, expected + 1)


def test_a_server_that_stands_still_is_given_up_in_time(
    served: Project, postgres: PostgresServer
) -> None:
    served.batch(1)
    _insert(served, 2)
    role = namespace_of(served.store.path)
    ((pid,),) = postgres.run(
        f"SELECT pid FROM pg_stat_activity WHERE usename = '{role}'", postgres.owner_dsn
    )
    os.kill(int(str(pid)), signal.SIGSTOP)
    try:
        served.sql.begin_event()
        started = time.monotonic()
        with pytest.raises(DatabaseUnreachableError, match="does not answer"):
            served.sql.query(b'{"statement":"SELECT 1","params":[]}', started + 0.1)
        assert time.monotonic() - started < GIVEN_UP_S
        served.sql.undo_event()
        with pytest.raises(DatabaseUnreachableError):
            served.store.commit(served.sql)
    finally:
        os.kill(int(str(pid)), signal.SIGCONT)
    until(lambda: _answers(served), "it answers")
    assert served.numbers() == (1, 1)
    served.batch(2)
    assert served.numbers() == (2, 2)


def test_the_number_is_not_believed_while_a_session_is_still_committing(
    served: Project, postgres: PostgresServer
) -> None:
    """A session that this process has forgotten holds the number until it ends."""
    served.batch(1)
    _insert(served, 2)
    assert isinstance(served.sql, PostgresDatabase)
    left, served.sql._connection = served.sql._connection, None
    assert left is not None
    state = f'"{namespace_of(served.store.path)}".fieldbrook_state'
    left.run(f"UPDATE {state} SET number = 2", time.monotonic() + LIMIT_S)
    assert committed_number(postgres.dsn, served.store.path) == 1
    with pytest.raises(ConnectionLostError):  # it was ended before the number was read
        left.run("COMMIT", time.monotonic() + LIMIT_S)
    served.sql.rollback()
    assert served.numbers() == (1, 1)


def test_a_server_that_is_down_refuses_events_and_a_stage_waits_for_it(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    backend = Backend(postgres.dsn)
    path = tmp_path / "p"
    first = Project(path, backend)
    first.batch(1)
    _before(first.store._stored, "settle", _fail)  # committed, and the stage is not applied
    with pytest.raises(StoreError, match="cut"):
        first.batch(2)
    vars(first.store._stored).pop("settle")
    first.close()
    postgres.stop()
    try:
        second = Project(path, backend)
        started = time.monotonic()
        for _ in range(20):
            second.sql.begin_event()
            with pytest.raises(DatabaseUnreachableError):
                second.sql.query(b'{"statement":"SELECT 1","params":[]}')
            second.sql.undo_event()
        assert time.monotonic() - started < GIVEN_UP_S, "every event waited"
        with pytest.raises(DatabaseUnreachableError):
            second.store.read(KEY)
        second.store.overlay[KEY] = b"9"
        with pytest.raises(DatabaseUnreachableError):
            second.store.commit(second.sql)
    finally:
        postgres.start()
    until(lambda: _answers(second), "it answers")
    assert second.numbers() == (2, 2)
    second.batch(3)
    assert second.numbers() == (3, 3)
    second.close()


def _answers(project: Project) -> bool:
    project.sql.begin_event()
    try:
        project.sql.query(b'{"statement":"SELECT 1","params":[]}')
    except DatabaseUnreachableError:
        return False
    finally:
        project.sql.undo_event()
        project.sql.rollback()
    return True
