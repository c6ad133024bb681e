"""Accounts: commands that create and change them."""

from __future__ import annotations

from fieldbrook.errors import (
    AccountIdentityConflictError,
    AccountNotFoundError,
    InvalidOldPasswordError,
    NoAdminPermissionError,
)
from fieldbrook.model import Account
from fieldbrook.storage.commands.change import Commands, command
from fieldbrook.storage.commands.operators import OperatorDraft, add_operator


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
        """Create an account, with its operator.

        Raises:
            AccountIdentityConflictError: the username is taken.
            NoAdminPermissionError: `only_if_first` and there is an administrator already.
        """
        with self.change() as change:
            if only_if_first and change.now.has_administrator():
                raise NoAdminPermissionError(reason="an administrator exists already")
            if change.now.account_named(username):
                raise AccountIdentityConflictError(what=f"username {username}")
            account = change.put(
                self.tables.accounts,
                Account(
                    account_id=change.new_id(),
                    username=username,
                    role=role,
                    password_hash=password_hash,
                    avatar=avatar,
                    created_at=change.time_ms,
                    updated_at=change.time_ms,
                ),
            )
            if operator is not None:
                add_operator(change, self.tables, account.account_id, operator)
            return account

    @command
    def update_password(self, account_id: int, old_hash: str, new_hash: str) -> Account:
        """Replace a password's hash, provided it still is the one the caller verified.

        Raises:
            AccountNotFoundError: no such account.
            InvalidOldPasswordError: the password was changed meanwhile.
        """
        with self.change() as change:
            account = change.now.account(account_id)
            if account is None:
                raise AccountNotFoundError(account=account_id)
            if account.password_hash != old_hash:
                raise InvalidOldPasswordError()
            return change.update(self.tables.accounts, account, password_hash=new_hash)
