"""Commands on accounts."""

from __future__ import annotations

import pytest

from fieldbrook.core.errors import (
    AccountIdentityConflictError,
    AccountNotFoundError,
    InvalidOldPasswordError,
    NoAdminPermissionError,
)
from fieldbrook.core.model import ADMIN
from tests.unit.storage.registry.harness import Registry


def test_the_first_administrator_is_created_once(registry: Registry) -> None:
    first = {"password_hash": "h", "role": ADMIN, "only_if_first": True}
    registry("create_account", username="one", **first)
    with pytest.raises(NoAdminPermissionError):
        registry("create_account", username="two", **first)


def test_a_username_is_taken_once(registry: Registry) -> None:
    registry.account()
    with pytest.raises(AccountIdentityConflictError, match="ada"):
        registry.account()


def test_a_password_changes_only_from_the_one_that_was_verified(registry: Registry) -> None:
    account_id = registry.account().account_id
    registry("update_password", account_id=account_id, old_hash="h", new_hash="i")
    with pytest.raises(InvalidOldPasswordError):
        registry("update_password", account_id=account_id, old_hash="h", new_hash="j")
    with pytest.raises(AccountNotFoundError):
        registry("update_password", account_id=5, old_hash="h", new_hash="j")
    found = registry.reader.account(account_id)
    assert found is not None
    assert found.password_hash == "i"
