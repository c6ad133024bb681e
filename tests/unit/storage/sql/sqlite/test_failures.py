"""Failures of SQLite: which are errors of the applet, and which of the node."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fieldbrook.core.errors import StatementError, StoreError
from fieldbrook.storage.sql.sqlite import failures
from fieldbrook.storage.sql.sqlite.failures import failure_of


def error(code: int, text: str = "the text of SQLite") -> sqlite3.Error:
    made = sqlite3.OperationalError(text)
    made.sqlite_errorcode = code
    return made


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR | 3 << 8])
def test_a_damaged_file_is_a_fault_of_the_node(code: int, tmp_path: Path) -> None:
    found = failure_of(error(code), tmp_path / "sql.db", 1 << 20, "")
    assert isinstance(found, StoreError)
    assert str(tmp_path) in str(found)


def test_a_full_database_is_blamed_on_the_applet_unless_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = error(sqlite3.SQLITE_FULL)
    found = failure_of(full, tmp_path / "sql.db", 4096, "")
    assert isinstance(found, StatementError)
    assert "4096 bytes" in str(found)
    monkeypatch.setattr(failures, "_DISK_RESERVE_BYTES", 1 << 62)
    assert isinstance(failure_of(full, tmp_path / "sql.db", 4096, ""), StoreError)


def test_a_refusal_of_the_guard_names_what_it_has_refused(tmp_path: Path) -> None:
    found = failure_of(error(sqlite3.SQLITE_AUTH), tmp_path / "sql.db", 1, "PRAGMA")
    assert str(found) == str(StatementError("applets may not use PRAGMA"))


def test_an_interrupted_statement_and_one_without_a_text_get_a_reason(tmp_path: Path) -> None:
    interrupted = failure_of(error(sqlite3.SQLITE_INTERRUPT), tmp_path / "sql.db", 1, "")
    assert "time limit" in str(interrupted)
    assert "too large" in str(failure_of(MemoryError(), tmp_path / "sql.db", 1, ""))
