"""Commands on publishers; if a token is an access key, both records are changed together."""

from __future__ import annotations

import lmdb

from fieldbrook.core.model import IDENTITY_PUBLISHER, AccessKey, Publisher
from fieldbrook.security import access_keys
from tests.unit.storage.registry.harness import Registry


def device(registry: Registry, expires_at: int = 0) -> Publisher:
    """A publisher with an access key, in a project of `ada`."""
    account = registry.reader.account_named("ada") or registry.account("ada")
    project = registry.reader.project_named("p") or registry(
        "create_project", account_id=account.account_id, name="p"
    )
    made: Publisher = registry(
        "create_publisher",
        project_id=project.project_id,
        name="d",
        key="d",
        access_key=True,
        expires_at=expires_at,
    )
    return made


def key_of(registry: Registry, publisher: Publisher) -> AccessKey | None:
    """Return the record of a publisher's token."""
    if not access_keys.is_access_key(publisher.token):
        return None
    parsed = access_keys.parse(publisher.token)
    return registry.reader.access_key_with_digest(parsed.digest)


def current(registry: Registry, publisher: Publisher) -> Publisher:
    found = registry.reader.publisher_anywhere(publisher.publisher_id)
    assert found is not None
    return found


def test_a_publishers_key_is_one_of_its_accounts_and_may_send_events_only(
    registry: Registry,
) -> None:
    publisher = device(registry, expires_at=registry.now_ms + 5)
    account = registry.reader.account_named("ada")
    assert account is not None
    (key,) = registry.reader.access_keys(account.account_id)
    assert key == key_of(registry, publisher)
    assert (key.name, key.identity_type) == (f"pub_{publisher.publisher_id}", IDENTITY_PUBLISHER)
    assert (key.identity_id, key.expires_at) == (publisher.publisher_id, registry.now_ms + 5)
    assert key.privileges == {"Event": "READ_WRITE"}


def test_a_replaced_or_removed_publishers_old_key_is_gone(registry: Registry) -> None:
    old = device(registry)
    new = registry("rotate_publisher_token", publisher_id=old.publisher_id)
    assert key_of(registry, old) is None
    assert key_of(registry, new) is not None
    assert registry.reader.publisher_with_token(old.token) is None
    assert registry.reader.publisher_with_token(new.token) == new
    ids = [old.publisher_id]
    registry("remove_publishers", project_id=old.project_id, publisher_ids=ids)
    assert key_of(registry, new) is None
    assert registry.reader.access_keys_of(old.publisher_id) == []


def test_with_its_project_a_publishers_key_is_gone(registry: Registry) -> None:
    publisher = device(registry)
    registry("remove_project", project_id=publisher.project_id)
    assert key_of(registry, publisher) is None
    assert registry.reader.publisher_with_token(publisher.token) is None


def test_removing_the_key_from_the_account_ends_the_publishers_token(registry: Registry) -> None:
    publisher = device(registry, expires_at=registry.now_ms + 5)
    account = registry.reader.account_named("ada")
    assert account is not None
    name = f"pub_{publisher.publisher_id}"
    assert registry("remove_access_key", account_id=account.account_id, name=name) == 1
    left = current(registry, publisher)
    assert left.token != publisher.token
    assert not access_keys.is_access_key(left.token)
    assert left.token_expires_at == 0


def test_a_key_that_is_to_end_earlier_ends_the_publishers_token_earlier(
    registry: Registry,
) -> None:
    publisher = device(registry)
    account = registry.reader.account_named("ada")
    assert account is not None
    name = f"pub_{publisher.publisher_id}"
    ends = registry.now_ms + 9
    registry("update_access_key", account_id=account.account_id, name=name, expires_at=ends)
    assert current(registry, publisher).token_expires_at == ends


def test_publishers_stored_before_there_was_an_index_of_tokens_are_found_by_theirs(
    registry: Registry,
) -> None:
    publisher = device(registry)
    registry.writer.close()
    with lmdb.open(str(registry.path), max_dbs=128, map_size=64 << 20) as environment:
        index = environment.open_db(b"publisher_tokens")
        with environment.begin(write=True) as txn:
            txn.drop(index)
    registry.reopen()
    assert registry.reader.publisher_with_token(publisher.token) == publisher


def test_removed_publishers_are_gone_from_every_index(registry: Registry) -> None:
    project_id = registry.project().project_id
    one = registry("create_publisher", project_id=project_id, name="n", key="one")
    gone = registry("remove_publishers", project_id=project_id, publisher_ids=[one.publisher_id])
    assert gone == 1
    assert registry.reader.publisher(project_id, "one") is None
    assert registry.reader.publishers(project_id) == []
    registry("create_publisher", project_id=project_id, name="n", key="one")
