"""Access keys: commands that create, change and remove them."""

from __future__ import annotations

import msgspec

from fieldbrook.core import quotas
from fieldbrook.core.errors import (
    AccessKeyNameConflictError,
    AccessKeyNotFoundError,
    AccountNotFoundError,
)
from fieldbrook.core.model import IDENTITY_ACCOUNT, IDENTITY_PUBLISHER, AccessKey, Publisher
from fieldbrook.security import access_keys
from fieldbrook.security.tokens import issue_publisher_token
from fieldbrook.storage.registry.commands.change import Change, Commands, command
from fieldbrook.storage.registry.tables import RegistryTables


class IssuedKey(msgspec.Struct, frozen=True):
    """A new access key and its text, which nobody can tell again."""

    key: AccessKey
    text: str


def add_access_key(
    change: Change,
    tables: RegistryTables,
    *,
    account_id: int,
    identity_id: int,
    identity_type: str,
    name: str,
    privileges: dict[str, str],
    expires_at: int = 0,
    description: str = "",
) -> IssuedKey:
    """A new access key as a part of a change.

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
        created_at=change.time_ms,
        updated_at=change.time_ms,
    )
    return IssuedKey(change.put(tables.access_keys, record), fresh.text)


def remove_access_keys_of(change: Change, tables: RegistryTables, identity_id: int) -> None:
    """Remove every key that stands for an account or a publisher, as a part of a change."""
    for key in change.now.access_keys_of(identity_id):
        change.remove(tables.access_keys, key)


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
            AccessKeyNameConflictError: it has a key of that name.
            QuotaExceededError: it has as many as it may.
        """
        with self.change() as change:
            if change.now.account(account_id) is None:
                raise AccountNotFoundError(account=account_id)
            self.require_quota(change, account_id, quotas.ACCESS_KEYS)
            return add_access_key(
                change,
                self.tables,
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
        """Remove a key; how many were (an unknown name is none)."""
        with self.change() as change:
            key = change.now.access_key_named(account_id, name)
            if key is None:
                return 0
            change.remove(self.tables.access_keys, key)
            publisher = self._publisher_of(change, key)
            if publisher is not None:
                # What was its token is to stop working: it has another, that nobody knows yet.
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
        """The publisher whose current token a key is."""
        if key.identity_type != IDENTITY_PUBLISHER:
            return None
        return self.tables.publishers.get(change.txn, key.identity_id)

    @command
    def note_access_keys_used(self, used: dict[int, int]) -> int:
        """Remember when keys were last used: key id -> Unix milliseconds.

        Returns:
            How many of them there still are. The change counter stays: what it tells others
            to read again, this does not touch.
        """
        with self.change() as change:
            noted = 0
            for access_key_id, last_used in used.items():
                key = self.tables.access_keys.get(change.txn, access_key_id)
                if key is None:
                    continue
                noted += 1
                if key.last_used < last_used:
                    later = msgspec.structs.replace(key, last_used=last_used)
                    self.tables.access_keys.put(change.txn, later)
            return noted
