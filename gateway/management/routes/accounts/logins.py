"""Logins: beginning with a password, renewing, and ending.

A login begins with a password or a wallet's signature and gets a token, which can be exchanged for
a newer one for `tokens.RENEWABLE_S`. Ending a login makes all its tokens invalid.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from fieldbrook.core.clock import now_ms, rfc3339
from fieldbrook.core.errors import (
    AccountIdentityNotFoundError,
    DisabledAccountError,
    InvalidAuthValueError,
    InvalidPasswordError,
    InvalidTokenError,
)
from fieldbrook.core.model import ENABLED, Account
from fieldbrook.gateway.management.framework.binding import Text, json_key
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.security import tokens

Password = Annotated[str, msgspec.Meta(max_length=1024)]


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """Username and password."""

    username: Text
    password: Password


class EndLogin(msgspec.Struct, frozen=True, kw_only=True):
    """The logins to end: that of the request's token, or all of the account."""

    all: bool = False


class LoginReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A token for an account, valid until `expireAt`."""

    account_id: str
    account_role: str
    token: str
    expire_at: str
    issuer: str


async def login(call: Call[Login, None]) -> LoginReply:
    """Log in with username and password; the answer holds a token for the account."""
    username = call.body.username
    call.throttle.attempt(username, call.peer)
    account = call.context.reader.account_named(username)
    if account is None:
        raise AccountIdentityNotFoundError(username=username)
    call.audit_trail.set_account(account)
    if not await call.workers.is_password(account, call.body.password):
        raise InvalidPasswordError()
    call.throttle.succeeded(username, call.peer)
    return login_reply(call, account)


def login_reply(
    call: Call[Any, Any], account: Account, login: tokens.Login | None = None
) -> LoginReply:
    """The answer to a login: a token for the account. Without `login`, a new login begins.

    Raises:
        DisabledAccountError: the account is disabled.
    """
    if account.state != ENABLED:
        raise DisabledAccountError(account=account.account_id)
    now_s = now_ms() // 1000
    login = login or tokens.new_login(now_s)
    lifetime_s = call.context.token_lifetime_s
    expires_at_s = min(now_s + lifetime_s, tokens.last_expiry_s(login, lifetime_s))
    return LoginReply(
        account_id=str(account.account_id),
        account_role=account.role,
        token=tokens.issue_account_token(
            call.context.token_key,
            account.account_id,
            expires_at_s,
            login,
            account.token_generation,
        ),
        expire_at=rfc3339(expires_at_s * 1000),
        issuer=tokens.ISSUER,
    )


async def renew_login(call: Call[None, None]) -> LoginReply:
    """Get a newer token for a login; possible for 24 hours after the password."""
    login = _login_of(call)
    if now_ms() // 1000 >= login.began_s + tokens.RENEWABLE_S:
        reason = "a login can be renewed for 24 hours, which are over: log in again"
        raise InvalidTokenError(reason=reason)
    return login_reply(call, call.account, login)


async def end_login(call: Call[None, EndLogin]) -> None:
    """End the login of this token, or with `all=true` all logins of the account.

    Access keys stay valid.
    """
    registry = call.context.registry
    if call.query.all:
        await registry.call("end_logins", account_id=call.account.account_id)
        return
    login = _login_of(call)
    valid_until_s = tokens.last_expiry_s(login, call.context.token_lifetime_s)
    await registry.call(
        "end_login",
        login_id=login.login_id,
        began_s=login.began_s,
        valid_until=valid_until_s * 1000,
    )


async def end_logins(call: Call[None, None]) -> None:
    """End all logins of the caller, including this one; access keys stay valid."""
    await call.context.registry.call("end_logins", account_id=call.account.account_id)


def _login_of(call: Call[Any, Any]) -> tokens.Login:
    if call.key is not None:
        raise InvalidAuthValueError(reason="an access key is not a login; send a login's token")
    if call.login is None:
        raise InvalidTokenError(reason="this token is of an older version: log in again")
    return call.login


ROUTES: tuple[Route, ...] = (
    Route("PUT", "/login", "LoginByUsername", login, auth=Auth.ANYBODY),
    Route("PUT", "/login/renew", "RenewLogin", renew_login),
    Route("DELETE", "/login", "EndLogin", end_login),
    Route("POST", "/logout", "EndLogins", end_logins),
)
