"""The audit log in the registry."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fieldbrook.core.errors import AccountIdentityConflictError, StoreError
from fieldbrook.storage.registry import audit
from fieldbrook.storage.registry.audit import AuditRow
from fieldbrook.storage.registry.service import RegistryReader, RegistryWriter, execute
from tests.unit.storage.registry.harness import KEY, MAP, Registry


def row(number: int) -> AuditRow:
    return AuditRow(number, 1, "ada", "", "127.0.0.1", "CreateProject", "POST", f"/p/{number}", 201)


def numbers(
    reader: RegistryReader, before: int = 0, limit: int = 100, wanted: str = ""
) -> tuple[list[int], int]:
    found = reader.audit(before, limit, lambda row: wanted in row.path)
    return [number for number, _ in found.rows], found.following


def test_a_row_is_written_with_its_change_or_not_at_all(registry: Registry) -> None:
    given = msgspec.to_builtins(row(1))
    account = {"username": "ada", "password_hash": "h", "role": "ADMIN"}
    registry("create_account", audit=given, **account)
    assert registry.reader.audit(0, 10, lambda _: True).rows == [(1, row(1))]
    with pytest.raises(AccountIdentityConflictError):
        registry("create_account", audit=given, **account)
    assert numbers(registry.reader) == ([1], 0)


def test_a_row_is_written_even_where_everything_was_as_it_should_be(registry: Registry) -> None:
    account_id = registry.account().account_id
    version = registry.reader.version()
    given = msgspec.to_builtins(row(1))
    registry("set_account_state", audit=given, account_id=account_id, state="ENABLED")
    assert registry.reader.version() == version
    assert numbers(registry.reader) == ([1], 0)


def test_a_command_without_a_row_writes_none_after_one_that_had(registry: Registry) -> None:
    registry(
        "create_account",
        audit=msgspec.to_builtins(row(1)),
        username="ada",
        password_hash="h",
        role="ADMIN",
    )
    registry.account("bob")
    assert numbers(registry.reader) == ([1], 0)


def test_rows_of_refused_calls_are_noted_without_moving_the_counter(registry: Registry) -> None:
    version = registry.reader.version()
    assert registry("add_audit_rows", rows=[msgspec.to_builtins(row(n)) for n in (1, 2)]) == 2
    assert registry.reader.version() == version
    assert numbers(registry.reader) == ([2, 1], 0)


def test_the_oldest_rows_go_when_there_are_too_many(tmp_path: Path) -> None:
    writer = RegistryWriter(tmp_path / "registry", MAP, lambda: 0, KEY, audit_rows=3)
    for n in range(1, 6):
        writer.add_audit_rows([row(n)])
    assert numbers(writer.reader()) == ([5, 4, 3], 0)
    writer.close()
    writer = RegistryWriter(tmp_path / "registry", MAP, lambda: 0, KEY, audit_rows=2)
    writer.add_audit_rows([row(6)])
    assert numbers(writer.reader()) == ([6, 5], 0)
    writer.close()


def test_pages_follow_each_other_without_a_gap(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.writer.add_audit_rows([row(n) for n in range(1, 26)])
    seen: list[int] = []
    before = 0
    while True:
        found, before = numbers(registry.reader, before, 10)
        seen += found
        if not before:
            break
    assert seen == list(range(25, 0, -1))
    assert numbers(registry.reader, before=1) == ([], 0)
    assert numbers(registry.reader, before=1_000, limit=2) == ([25, 24], 24)
    monkeypatch.setattr(audit, "_SCAN_LIMIT", 10)
    assert numbers(registry.reader, wanted="/p/3") == ([], 16)
    assert numbers(registry.reader, before=16, wanted="/p/3") == ([], 6)
    assert numbers(registry.reader, before=6, wanted="/p/3") == ([3], 0)


def test_a_row_of_another_form_is_refused(registry: Registry) -> None:
    with pytest.raises(StoreError):
        execute(registry.writer, "add_audit_rows", {"rows": [], "audit": ["nonsense"]})
