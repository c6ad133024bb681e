"""The registry's commands on access keys."""

from __future__ import annotations

import base64

import pytest

from fieldbrook.core.errors import (
    AccessKeyNameConflictError,
    AccessKeyNotFoundError,
    AccountNotFoundError,
)
from fieldbrook.core.model import IDENTITY_ACCOUNT, IDENTITY_PUBLISHER
from fieldbrook.security import access_keys
from fieldbrook.storage.registry.commands.accounts.access_keys import (
    add_access_key,
    remove_access_keys_of,
)
from tests.unit.storage.registry.harness import Registry


def test_a_key_is_found_by_its_digest_and_its_text_is_nowhere_in_the_store(
    registry: Registry,
) -> None:
    account = registry.account()
    made = registry(
        "create_access_key",
        account_id=account.account_id,
        name="ci",
        privileges={"Applet": "READONLY"},
        expires_at=5,
        description="for builds",
    )
    parsed = access_keys.parse(made.text)
    assert registry.reader.access_key_with_digest(parsed.digest) == made.key
    assert registry.reader.access_key_named(account.account_id, "ci") == made.key
    assert registry.reader.access_keys(account.account_id) == [made.key]
    assert made.key.identity_type == IDENTITY_ACCOUNT
    assert made.key.identity_id == account.account_id
    assert parsed.issued_at_s == registry.now_ms // 1000
    registry.writer.close()
    stored = b"".join(file.read_bytes() for file in registry.path.iterdir())
    registry.reopen()
    random = base64.urlsafe_b64decode(made.text[4:] + "==").rpartition(b"_")[2]
    assert made.text.encode() not in stored
    assert random not in stored
    assert parsed.digest in stored


def test_a_name_is_taken_once_in_an_account(registry: Registry) -> None:
    ada, bob = registry.account("ada"), registry.account("bob")
    for account in (ada, bob):
        registry("create_access_key", account_id=account.account_id, name="ci", privileges={})
    version = registry.reader.version()
    with pytest.raises(AccessKeyNameConflictError):
        registry("create_access_key", account_id=ada.account_id, name="ci", privileges={})
    with pytest.raises(AccountNotFoundError):
        registry("create_access_key", account_id=7, name="ci", privileges={})
    assert registry.reader.version() == version


def test_a_key_is_changed_field_by_field_and_removed_once(registry: Registry) -> None:
    account_id = registry.account().account_id
    where = {"account_id": account_id, "name": "ci"}
    made = registry("create_access_key", privileges={"Event": "READONLY"}, **where)
    changed = registry("update_access_key", expires_at=9, **where)
    assert (changed.expires_at, changed.privileges) == (9, made.key.privileges)
    changed = registry("update_access_key", privileges={}, description="d", **where)
    assert (changed.expires_at, changed.privileges, changed.description) == (9, {}, "d")
    assert changed.digest == made.key.digest
    assert registry("remove_access_key", **where) == 1
    assert registry("remove_access_key", **where) == 0
    assert registry.reader.access_key_with_digest(made.key.digest) is None
    with pytest.raises(AccessKeyNotFoundError):
        registry("update_access_key", expires_at=1, **where)


def test_noting_a_use_moves_neither_the_counter_nor_backwards(registry: Registry) -> None:
    account_id = registry.account().account_id
    made = registry("create_access_key", account_id=account_id, name="ci", privileges={})
    version = registry.reader.version()
    key_id = made.key.access_key_id
    assert registry("record_access_key_use", used={key_id: 50, 7: 50}) == 1
    assert registry("record_access_key_use", used={key_id: 40}) == 1
    found = registry.reader.access_key_named(account_id, "ci")
    assert found is not None
    assert (found.last_used, found.updated_at) == (50, made.key.updated_at)
    assert registry.reader.version() == version


def test_a_publishers_keys_end_with_it(registry: Registry) -> None:
    account_id = registry.account().account_id
    with registry.writer.change() as change:
        add_access_key(
            change,
            account_id=account_id,
            identity_id=77,
            identity_type=IDENTITY_PUBLISHER,
            name=access_keys.publisher_key_name(77),
            privileges=dict(access_keys.PUBLISHER_PRIVILEGES),
        )
    (key,) = registry.reader.access_keys_of(77)
    assert (key.name, key.privileges) == ("pub_77", {"Event": "READ_WRITE"})
    with registry.writer.change() as change:
        remove_access_keys_of(change, 77)
    assert registry.reader.access_keys(account_id) == []
