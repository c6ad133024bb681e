"""Wallets: the command that signs a wallet in and accepts each nonce only once."""

from __future__ import annotations

from fieldbrook.core.errors import (
    InvalidEthLoginMessageError,
    TooManyRequestsError,
    WhiteListForbiddenError,
)
from fieldbrook.core.model import DEVELOPER, Account
from fieldbrook.storage.lmdb.ids import from_key, to_key
from fieldbrook.storage.registry.commands.accounts.operators import OperatorDraft, add_operator
from fieldbrook.storage.registry.commands.change import Change, Commands, command

_REMEMBERED = 100_000


class WalletCommands(Commands):
    """Commands on accounts of wallets, whose username is the address in lower case."""

    @command
    def sign_in_wallet(
        self,
        address: str,
        digest: bytes,
        valid_until: int,
        may_create: bool,
        operator: OperatorDraft | None = None,
    ) -> Account:
        """Return the account of a wallet; create it with its operator if it does not exist.

        `digest` identifies the nonce, which must not have been used before. It is stored until
        `valid_until` (Unix milliseconds); after that the nonce is refused as too old anyway.

        Raises:
            InvalidEthLoginMessageError: the nonce was used before.
            TooManyRequestsError: the table of used nonces is full.
            WhiteListForbiddenError: the account does not exist and `may_create` is not set.
        """
        with self.change() as change:
            self._use(change, to_key(valid_until) + digest)
            account = change.now.account_named(address)
            if account is not None:
                return account
            if not may_create:
                raise WhiteListForbiddenError(address=address)
            made = change.put(
                self.tables.accounts,
                Account(
                    account_id=change.new_id(),
                    username=address,
                    role=DEVELOPER,
                    password_hash="",
                    created_at=change.time_ms,
                    updated_at=change.time_ms,
                ),
            )
            if operator is not None:
                add_operator(change, self.tables, made.account_id, operator)
            return made

    def _use(self, change: Change, key: bytes) -> None:
        used = self.tables.wallet_nonces
        with change.txn.cursor(used) as cursor:
            more = cursor.first()
            while more and from_key(cursor.key()[:8]) <= change.time_ms:
                more = cursor.delete()
        if change.txn.stat(used)["entries"] >= _REMEMBERED:
            raise TooManyRequestsError(what="wallets sign in")
        if not change.txn.put(key, b"", overwrite=False, db=used):
            raise InvalidEthLoginMessageError(reason="its nonce was used before")
