"""Who manages: from the token of a request to an account.

Source: interface document, 4.1, 4.2 and 4.4.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple

from fieldbrook.core.errors import (
    AccountNotFoundError,
    DisabledAccountError,
    InvalidAuthValueError,
    InvalidTokenError,
    NoAdminPermissionError,
)
from fieldbrook.core.model import ADMIN, ENABLED, IDENTITY_ACCOUNT, AccessKey, Account
from fieldbrook.security import access_keys
from fieldbrook.security.access_keys import Permission
from fieldbrook.security.tokens import read_account_token
from fieldbrook.storage.registry.service import RegistryReader

_SCHEME = "Bearer"


class Caller(NamedTuple):
    """Who calls, and the access key they came with, if it was one."""

    account: Account
    key: AccessKey | None


def bare_token(text: str) -> str:
    """A token without the scheme that clients put before it, wherever it stands: in a message's
    header and in a topic as well (interface document, 4.1)."""
    return text.replace(_SCHEME, " ", 1).strip()


def token_of(query_value: str | None, header: str | None) -> str:
    """The token a request carries: in the query `authorization`, else in the header.

    The first `Bearer` counts as a space, so `Bearer X`, `BearerX` and `X` are the same.
    """
    return bare_token(query_value or header or "")


def account_of(reader: RegistryReader, token_key: bytes, token: str) -> Account:
    """The account a token was issued for.

    Raises:
        InvalidTokenError: absent, malformed, expired, not an account's token of this node,
            or ended: by a new password, by disabling the account, or by its owner.
        AccountNotFoundError: the account is gone.
        DisabledAccountError: it is disabled.
    """
    read = read_account_token(token_key, token)
    account = _enabled(reader, read.account_id)
    if read.generation != account.token_generation:
        raise InvalidTokenError(reason="this login has been ended: log in again")
    return account


def key_of(reader: RegistryReader, text: str, now_ms: int) -> AccessKey:
    """The record of an access key that is genuine and has not expired.

    Raises:
        InvalidAccessKeyError: malformed, or forged.
        AccessKeyNotFoundError: removed, or of another node.
        AccessKeyExpiredError: its time is over.
    """
    parsed = access_keys.parse(text)
    return access_keys.require_valid(reader.access_key_with_digest(parsed.digest), parsed, now_ms)


def account_of_key(
    reader: RegistryReader, key: AccessKey, group: str, needed: Permission, operation: str
) -> Account:
    """The account that an access key may act for in this operation.

    Raises:
        AccessKeyPermissionDeniedError: the key is not granted enough on the group.
        InvalidAuthValueError: the key is a publisher's.
        AccountNotFoundError, DisabledAccountError: the account is gone, or is disabled.
    """
    access_keys.require_permission(key, group, needed, operation)
    if key.identity_type != IDENTITY_ACCOUNT:
        raise InvalidAuthValueError(reason="this access key is a publisher's")
    return _enabled(reader, key.account_id)


def _enabled(reader: RegistryReader, account_id: int) -> Account:
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
