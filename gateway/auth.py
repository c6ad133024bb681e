"""Who manages: from the token of a request to an account.

Source: interface document, 4.1 and 4.2.
"""

from __future__ import annotations

import hmac

from fieldbrook.errors import (
    AccountNotFoundError,
    DisabledAccountError,
    NoAdminPermissionError,
)
from fieldbrook.model import ADMIN, ENABLED, Account
from fieldbrook.storage.registry import RegistryReader
from fieldbrook.tokens import read_token

_SCHEME = "Bearer"


def token_of(query_value: str | None, header: str | None) -> str:
    """The token a request carries: in the query `authorization`, else in the header.

    The first `Bearer` counts as a space, so `Bearer X`, `BearerX` and `X` are the same.
    """
    return (query_value or header or "").replace(_SCHEME, " ", 1).strip()


def account_of(reader: RegistryReader, token_key: bytes, token: str) -> Account:
    """The account a token was issued for.

    Raises:
        InvalidTokenError: absent, malformed, expired, or not an account's token of this node.
        AccountNotFoundError: the account is gone.
        DisabledAccountError: it is disabled.
    """
    account_id = read_token(token_key, token)
    account = reader.account(account_id)
    if account is None:
        raise AccountNotFoundError(account=account_id)
    if account.state != ENABLED:
        raise DisabledAccountError(account=account_id)
    return account


def require_setup_code(given: str | None, expected: str) -> None:
    """Let the first administrator in, by the code the node printed at its first start.

    Raises:
        NoAdminPermissionError: another code, or none.
    """
    same = hmac.compare_digest((given or "").encode(), expected.encode())
    if not expected or not same:
        raise NoAdminPermissionError(reason="the header X-Setup-Code is not this node's setup code")


def require_admin(account: Account) -> None:
    """Let administrators through.

    Raises:
        NoAdminPermissionError: the account is none.
    """
    if account.role != ADMIN:
        raise NoAdminPermissionError(reason=f"account {account.account_id} has not the role ADMIN")
