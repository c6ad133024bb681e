"""Access keys: commands that create, change and remove them."""

from __future__ import annotations

import msgspec

from fieldbrook.core import quotas
from fieldbrook.core.errors import AccessKeyNameConflictError, AccessKeyNotFoundError
from fieldbrook.core.model import IDENTITY_ACCOUNT, IDENTITY_PUBLISHER, AccessKey, Publisher
from fieldbrook.security import access_keys
from fieldbrook.security.tokens import issue_publisher_token
from fieldbrook.storage.registry.commands.change import Change, Commands, command


class IssuedKey(msgspec.Struct, frozen=True):
    """A new access key and its text, which is not stored and cannot be shown again."""

    key: AccessKey
    text: str


def add_access_key(
    change: Change,
    *,
    account_id: int,
    identity_id: int,
    identity_type: str,
    name: str,
    privileges: dict[str, str],
    expires_at: int = 0,
    description: str = "",
) -> IssuedKey:
    """Add a new access key within a change.

    Raises:
        AccessKeyNameConflictError: the account has a key of that name.
    """
    if change.now.access_key_named(account_id, name):
        raise AccessKeyNameConflictError(what=f"access key {name}")
    fresh = access_keys.issue(change.time_ms)
    record = AccessKey(
        access_key_id=change.new_id(),
        account_id=account_id,
        identity_id=identity_id,
        identity_type=identity_type,
        name=name,
        digest=fresh.parsed.digest,
        issued_at_s=fresh.parsed.issued_at_s,
        expires_at=expires_at,
        description=description,
        privileges=privileges,
    )
    return IssuedKey(change.add(change.tables.access_keys, record), fresh.text)


def remove_access_keys_of(change: Change, identity_id: int) -> None:
    """Remove every access key of an account or a publisher within a change."""
    for key in change.now.access_keys_of(identity_id):
        change.remove(change.tables.access_keys, key)


class AccessKeyCommands(Commands):
    """Commands on the access keys of accounts."""

    @command
    def create_access_key(
        self,
        account_id: int,
        name: str,
        privileges: dict[str, str],
        expires_at: int = 0,
        description: str = "",
    ) -> IssuedKey:
        """Create a key that stands for an account.

        Raises:
            AccountNotFoundError: no such account.
            AccessKeyNameConflictError: the account has a key of that name.
            QuotaExceededError: the account has as many keys as its quota allows.
        """
        with self.change() as change:
            change.account(account_id)
            change.require_quota(account_id, quotas.ACCESS_KEYS)
            return add_access_key(
                change,
                account_id=account_id,
                identity_id=account_id,
                identity_type=IDENTITY_ACCOUNT,
                name=name,
                privileges=privileges,
                expires_at=expires_at,
                description=description,
            )

    @command
    def update_access_key(
        self,
        account_id: int,
        name: str,
        privileges: dict[str, str] | None = None,
        expires_at: int | None = None,
        description: str | None = None,
    ) -> AccessKey:
        """Change a key; None leaves a field as it is.

        Raises:
            AccessKeyNotFoundError: the account has no key of that name.
        """
        given = {
            "privileges": privileges,
            "expires_at": expires_at,
            "description": description,
        }
        with self.change() as change:
            key = change.now.access_key_named(account_id, name)
            if key is None:
                raise AccessKeyNotFoundError(what=f"access key {name}")
            fields = {field: value for field, value in given.items() if value is not None}
            publisher = self._publisher_of(change, key)
            if publisher is not None and expires_at is not None:
                change.update(self.tables.publishers, publisher, token_expires_at=expires_at)
            return change.update(self.tables.access_keys, key, **fields)

    @command
    def remove_access_key(self, account_id: int, name: str) -> int:
        """Remove a key; return the number of removed keys, 0 for an unknown name.

        If the key was the token of a publisher, the publisher gets a new token, which is not shown
        to anyone.
        """
        with self.change() as change:
            key = change.now.access_key_named(account_id, name)
            if key is None:
                return 0
            change.remove(self.tables.access_keys, key)
            publisher = self._publisher_of(change, key)
            if publisher is not None:
                # The old token must stop working, so the publisher gets an unknown new one.
                token = issue_publisher_token(self.token_key, publisher.publisher_id)
                change.touch(
                    self.tables.publishers,
                    publisher,
                    token=token,
                    token_expires_at=0,
                    token_issued_at=change.time_ms,
                )
            return 1

    def _publisher_of(self, change: Change, key: AccessKey) -> Publisher | None:
        """Return the publisher that uses a key as its current token, if any."""
        if key.identity_type != IDENTITY_PUBLISHER:
            return None
        return self.tables.publishers.get(change.txn, key.identity_id)

    @command
    def record_access_key_use(self, used: dict[int, int]) -> int:
        """Store when keys were last used: key id -> Unix milliseconds.

        The change counter stays as it is, because no cache depends on these times.

        Returns:
            The number of these keys that still exist.
        """
        with self.change(uses_reserve=True) as change:
            found = 0
            for access_key_id, last_used in used.items():
                key = self.tables.access_keys.get(change.txn, access_key_id)
                if key is None:
                    continue
                found += 1
                if key.last_used < last_used:
                    self.tables.access_keys.put(
                        change.txn, msgspec.structs.replace(key, last_used=last_used)
                    )
            return found
