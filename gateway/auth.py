"""Authentication of management requests: from a request's token to an account.

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
from fieldbrook.security.access_keys import Group, Permission
from fieldbrook.security.tokens import Login, last_expiry_s, read_account_token
from fieldbrook.storage.registry.service import RegistryReader

_SCHEME = "Bearer"


class Caller(NamedTuple):
    """The calling account, and the access key or the login of the request's token.

    `login` is None for an access key and for tokens of fieldbrook 0.1. `expires_at_s` is when the
    token expires, in Unix seconds; 0 for an access key, whose record has its expiry.
    """

    account: Account
    key: AccessKey | None = None
    login: Login | None = None
    expires_at_s: int = 0


def strip_scheme(text: str) -> str:
    """Return a token without the scheme `Bearer`.

    Clients send the scheme in HTTP headers, message headers and topics (interface document, 4.1).
    """
    return text.replace(_SCHEME, " ", 1).strip()


def request_token(query_value: str | None, header: str | None) -> str:
    """Return a request's token: from the query parameter `authorization`, else from the header.

    The first `Bearer` counts as a space, so `Bearer X`, `BearerX` and `X` are the same.
    """
    return strip_scheme(query_value or header or "")


def caller_from_token(
    reader: RegistryReader, token_key: bytes, token: str, *, now_s: int, lifetime_s: int
) -> Caller:
    """Return the account that a token was issued for, and the login.

    Args:
        now_s: the time, in Unix seconds.
        lifetime_s: the setting `token_lifetime_s`.

    Raises:
        InvalidTokenError: the token is absent, malformed, expired, or not an account's token of
            this node; or the login was ended by a new password, by disabling the account, or by its
            owner; or the login has expired, so that it can have no valid token.
        AccountNotFoundError: the account does not exist any more.
        DisabledAccountError: the account is disabled.
    """
    read = read_account_token(token_key, token)
    account = _enabled(reader, read.account_id)
    # The registry forgets an ended login at `last_expiry_s`, so no token is accepted after it.
    if read.login is not None and now_s >= last_expiry_s(read.login, lifetime_s):
        raise InvalidTokenError(reason="this login has expired: log in again")
    ended = read.login is not None and reader.has_ended(read.login)
    if ended or read.generation != account.token_generation:
        raise InvalidTokenError(reason="this login was ended: log in again")
    return Caller(account, login=read.login, expires_at_s=read.expires_at_s)


def valid_access_key(reader: RegistryReader, text: str, now_ms: int) -> AccessKey:
    """Return the record of an access key that is genuine and has not expired.

    Raises:
        InvalidAccessKeyError: the key is malformed or forged.
        AccessKeyNotFoundError: the key was removed, or belongs to another node.
        AccessKeyExpiredError: the key has expired.
    """
    parsed = access_keys.parse(text)
    return access_keys.require_valid(reader.access_key_with_digest(parsed.digest), parsed, now_ms)


def require_sending(reader: RegistryReader, token: str, operation: str) -> None:
    """Check that the current token of a publisher may send events.

    Raises:
        AccessKeyPermissionDeniedError: it is an access key that has lost this permission.
    """
    if not access_keys.is_access_key(token):
        return
    key = reader.access_key_with_digest(access_keys.parse(token).digest)
    if key is not None:
        access_keys.require_permission(key, Group.EVENT, Permission.READ_WRITE, operation)


def account_from_access_key(
    reader: RegistryReader, key: AccessKey, group: str, needed: Permission, operation: str
) -> Account:
    """Return the account that an access key may act for in this operation.

    Raises:
        AccessKeyPermissionDeniedError: the key lacks the needed permission on the group.
        InvalidAuthValueError: the key belongs to a publisher.
        AccountNotFoundError, DisabledAccountError: the account does not exist, or is disabled.
    """
    access_keys.require_permission(key, group, needed, operation)
    if key.identity_type != IDENTITY_ACCOUNT:
        raise InvalidAuthValueError(
            reason="this access key belongs to a publisher, not to an account"
        )
    return _enabled(reader, key.account_id)


def _enabled(reader: RegistryReader, account_id: int) -> Account:
    account = reader.account(account_id)
    if account is None:
        raise AccountNotFoundError(account=account_id)
    if account.state != ENABLED:
        raise DisabledAccountError(account=account_id)
    return account


def require_setup_code(given: str | None, expected: str) -> None:
    """Check the setup code that the node printed at its first start.

    Raises:
        NoAdminPermissionError: the code is wrong or absent, or the node expects none.
    """
    same = hmac.compare_digest((given or "").encode(), expected.encode())
    if not expected or not same:
        raise NoAdminPermissionError(reason="the header X-Setup-Code is not this node's setup code")


def require_admin(account: Account) -> None:
    """Check that an account belongs to an administrator.

    Raises:
        NoAdminPermissionError: the account does not have the role ADMIN.
    """
    if account.role != ADMIN:
        raise NoAdminPermissionError(
            reason=f"account {account.account_id} does not have the role ADMIN"
        )
