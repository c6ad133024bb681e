"""Wallets: the command that signs a wallet in and accepts each nonce only once."""

from __future__ import annotations

from fieldbrook.core.errors import (
    InvalidEthLoginMessageError,
    TooManyRequestsError,
    WhiteListForbiddenError,
)
from fieldbrook.core.model import DEVELOPER, Account
from fieldbrook.storage.lmdb.ids import from_key, to_key
from fieldbrook.storage.registry.commands.accounts.accounts import add_account
from fieldbrook.storage.registry.commands.accounts.operators import OperatorDraft
from fieldbrook.storage.registry.commands.change import Change, Commands, command

_NONCES_LIMIT = 100_000


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
            self._use_nonce(change, to_key(valid_until) + digest)
            account = change.now.account_named(address)
            if account is not None:
                change.uses_reserve = True
                return account
            if not may_create:
                raise WhiteListForbiddenError(address=address)
            return add_account(change, address, DEVELOPER, operator=operator)

    def _use_nonce(self, change: Change, key: bytes) -> None:
        nonces = self.tables.wallet_nonces
        with change.txn.cursor(nonces) as cursor:
            more = cursor.first()
            while more and from_key(cursor.key()[:8]) <= change.time_ms:
                more = cursor.delete()
        if change.txn.stat(nonces)["entries"] >= _NONCES_LIMIT:
            raise TooManyRequestsError(what="too many wallets have signed in recently")
        if not change.txn.put(key, b"", overwrite=False, db=nonces):
            raise InvalidEthLoginMessageError(reason="its nonce was used before")
