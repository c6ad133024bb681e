"""Accounts: commands that create and change them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from fieldbrook.core.errors import (
    AccountIdentityConflictError,
    AccountInUseError,
    InvalidOldPasswordError,
    LastAdministratorError,
    NoAdminPermissionError,
)
from fieldbrook.core.model import ADMIN, ENABLED, Account
from fieldbrook.core.quotas import BYTES, PROCESSES, PROJECTS
from fieldbrook.storage.registry.commands.accounts.operators import OperatorDraft, add_operator
from fieldbrook.storage.registry.commands.change import Change, Commands, command
from fieldbrook.storage.registry.tables import QUOTAS_CELL

log = logging.getLogger(__name__)


def add_account(
    change: Change,
    username: str,
    role: str,
    password_hash: str = "",
    avatar: str = "",
    operator: OperatorDraft | None = None,
) -> Account:
    """Add an account and, if given, its operator within a change."""
    account = change.add(
        change.tables.accounts,
        Account(
            account_id=change.new_id(),
            username=username,
            role=role,
            password_hash=password_hash,
            avatar=avatar,
        ),
    )
    if operator is not None:
        add_operator(change, account.account_id, operator)
    return account


class AccountCommands(Commands):
    """Commands on accounts."""

    @command
    def create_account(
        self,
        username: str,
        password_hash: str,
        role: str,
        only_if_first: bool = False,
        avatar: str = "",
        operator: OperatorDraft | None = None,
    ) -> Account:
        """Create an account and, if given, its operator.

        Raises:
            AccountIdentityConflictError: the username is taken.
            NoAdminPermissionError: `only_if_first` is set and an administrator exists already.
        """
        with self.change() as change:
            if only_if_first and change.now.has_administrator():
                raise NoAdminPermissionError(reason="an administrator exists already")
            if change.now.account_named(username):
                raise AccountIdentityConflictError(what=f"username {username}")
            return add_account(change, username, role, password_hash, avatar, operator)

    @command
    def update_password(self, account_id: int, old_hash: str, new_hash: str) -> Account:
        """Replace a password's hash and end all logins, if the hash still is `old_hash`.

        Raises:
            AccountNotFoundError: no such account.
            InvalidOldPasswordError: the password was changed after the caller verified it.
        """
        with self.change(uses_reserve=True) as change:
            account = change.account(account_id)
            if account.password_hash != old_hash:
                raise InvalidOldPasswordError()
            return self._end_logins(change, account, password_hash=new_hash)

    @command
    def set_password(self, account_id: int, new_hash: str) -> Account:
        """Replace a password's hash without a check of the old one, and end all logins.

        Raises:
            AccountNotFoundError: no such account.
        """
        with self.change(uses_reserve=True) as change:
            account = change.account(account_id)
            return self._end_logins(change, account, password_hash=new_hash)

    @command
    def end_logins(self, account_id: int) -> Account:
        """End all logins of an account; its access keys stay.

        Raises:
            AccountNotFoundError: no such account.
        """
        with self.change(uses_reserve=True) as change:
            return self._end_logins(change, change.account(account_id))

    @command
    def set_account_state(self, account_id: int, state: str) -> Account:
        """Enable or disable an account.

        Disabling ends its logins. Enabling it again does not restore them.

        Raises:
            AccountNotFoundError: no such account.
            LastAdministratorError: the node would have no enabled administrator.
        """
        with self.change(uses_reserve=True) as change:
            account = change.account(account_id)
            if state == account.state:
                return account
            if state == ENABLED:
                return change.update(self.tables.accounts, account, state=state)
            _refuse_last_administrator(change, account)
            return self._end_logins(change, account, state=state)

    @command
    def set_account_role(self, account_id: int, role: str) -> Account:
        """Make an account an administrator or a developer.

        Raises:
            AccountNotFoundError: no such account.
            LastAdministratorError: the node would have no enabled administrator.
        """
        with self.change(uses_reserve=True) as change:
            account = change.account(account_id)
            if role == account.role:
                return account
            if account.role == ADMIN:
                _refuse_last_administrator(change, account)
            changed = change.update(self.tables.accounts, account, role=role)
            return self._update_storage_mark(change, changed)

    @command
    def set_account_quotas(
        self, account_id: int, limits: dict[str, int | None], default: Sequence[str] = ()
    ) -> Account:
        """Set limits of an account's own; the limits that are not named stay.

        A limit of None means unlimited. Those named in `default` follow the settings again.

        Raises:
            AccountNotFoundError: no such account.
        """
        with self.change(uses_reserve=True) as change:
            account = change.account(account_id)
            kept = {name: n for name, n in account.quotas.items() if name not in default}
            changed = change.update(self.tables.accounts, account, quotas={**kept, **limits})
            return self._update_storage_mark(change, changed)

    def update_storage_marks(self) -> list[Account]:
        """Mark the accounts that exceed their quota of bytes, and unmark the others.

        Events of a marked account's projects are refused.

        Returns:
            The accounts whose mark has changed.
        """
        with self.change(uses_reserve=True) as change:
            self._raise_exceeded_quotas(change)
            before = change.now.accounts()
            after = [self._update_storage_mark(change, account) for account in before]
            return [new for old, new in zip(before, after, strict=True) if new is not old]

    def _raise_exceeded_quotas(self, change: Change) -> None:
        """Give accounts that exceed new quotas a limit of their own, once per registry.

        So the first start with quotas does not refuse events of accounts that already exceed the
        quota of bytes, or have more projects than processes. These accounts get unlimited bytes,
        and as many processes as they have projects.
        """
        if change.txn.get(QUOTAS_CELL, db=self.tables.meta) is not None:
            return
        change.txn.put(QUOTAS_CELL, b"1", db=self.tables.meta)
        for account in change.now.accounts():
            used = {
                name: change.now.usage(account.account_id, name, self.stored)
                for name in (BYTES, PROJECTS)
            }
            raised: dict[str, int | None] = {}
            if _is_above(self.quotas.limit(account, BYTES), used[BYTES]):
                raised[BYTES] = None
            if _is_above(self.quotas.limit(account, PROCESSES), used[PROJECTS]):
                raised[PROCESSES] = used[PROJECTS]
            if raised:
                log.warning(
                    "account %s has more than the quotas of the settings allow, and has limits of "
                    "its own from now on: %s (see `fieldbrook account quota`)",
                    account.username,
                    ", ".join(
                        f"{name} {'unlimited' if limit is None else limit}"
                        for name, limit in raised.items()
                    ),
                )
                change.update(self.tables.accounts, account, quotas={**account.quotas, **raised})

    def _update_storage_mark(self, change: Change, account: Account) -> Account:
        limit = self.quotas.limit(account, BYTES)
        used = 0 if limit is None else change.now.usage(account.account_id, BYTES, self.stored)
        over = limit is not None and used > limit
        if over == account.over_storage:
            return account
        return change.put(self.tables.accounts, msgspec.structs.replace(account, over_storage=over))

    @command
    def remove_account(self, account_id: int) -> Account:
        """Remove an account, its access keys, its operators, and its resources without an applet.

        Raises:
            AccountNotFoundError: no such account.
            AccountInUseError: the account has projects.
            LastAdministratorError: the node would have no enabled administrator.
        """
        with self.change(uses_reserve=True) as change:
            account = change.account(account_id)
            _refuse_last_administrator(change, account)
            if projects := change.now.projects(account_id):
                raise AccountInUseError(account=account_id, projects=len(projects))
            for key in change.now.access_keys(account_id):
                change.remove(self.tables.access_keys, key)
            for operator in change.now.operators(account_id):
                change.remove(self.tables.operators, operator)
            for resource in change.now.resources(account_id):
                if not change.is_resource_used(resource.resource_id):
                    change.remove_resource(resource)
            change.remove(self.tables.accounts, account)
            return account

    def _end_logins(self, change: Change, account: Account, **fields: Any) -> Account:
        """Store `account` with other fields, and invalidate all logins issued so far."""
        generation = account.token_generation + 1
        return change.touch(self.tables.accounts, account, token_generation=generation, **fields)


def _is_above(limit: int | None, used: int) -> bool:
    return limit is not None and used > limit


def _refuse_last_administrator(change: Change, account: Account) -> None:
    administrators = [other.account_id for other in change.now.administrators()]
    if administrators == [account.account_id]:
        raise LastAdministratorError(account=account.account_id)
