"""Accounts: the first administrator, logging in, passwords."""

from __future__ import annotations

import secrets
import string
from typing import Annotated, Any, Literal

import msgspec

from fieldbrook import tokens
from fieldbrook.clock import now_ms, rfc3339
from fieldbrook.errors import (
    AccountIdentityNotFoundError,
    BadRequestError,
    DisabledAccountError,
    FieldError,
    InvalidNewPasswordError,
    InvalidOldPasswordError,
    InvalidPasswordError,
)
from fieldbrook.gateway.management.binding import Text
from fieldbrook.gateway.management.route import Auth, Call, Route
from fieldbrook.gateway.management.views import Json, account_json
from fieldbrook.model import ENABLED

_PASSWORD_MIN = 8
_GENERATED_LENGTH = 16
_ALPHABET = string.ascii_letters + string.digits

Password = Annotated[str, msgspec.Meta(max_length=1024)]


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """A new account; without a password one is generated and returned, once."""

    username: Text
    password: Password | None = None
    role: Literal["ADMIN", "DEVELOPER"] = "ADMIN"


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """Username and password."""

    username: str
    password: str


class ChangePassword(msgspec.Struct, frozen=True, kw_only=True):
    """The old password and the new one of the caller."""

    old_password: Password = msgspec.field(name="oldPassword")
    password: Password


async def register(call: Call[Register, None]) -> Json:
    """Create an account; the first one needs the setup code, later ones an administrator."""
    given = call.body.password
    if given is not None:
        _require_length(given)
    password = given or "".join(secrets.choice(_ALPHABET) for _ in range(_GENERATED_LENGTH))
    account = await call.context.registry.call(
        "create_account",
        username=call.body.username,
        password_hash=await call.workers.hash_password(password),
        role=call.body.role,
        only_if_first=call.caller is None,
    )
    return {**account_json(account), **({} if given else {"password": password})}


async def login(call: Call[Login, None]) -> Json:
    """A token for the account whose password this is."""
    account = call.context.reader.account_named(call.body.username)
    if account is None:
        raise AccountIdentityNotFoundError(username=call.body.username)
    if not await call.workers.is_password(account.password_hash, call.body.password):
        raise InvalidPasswordError()
    if account.state != ENABLED:
        raise DisabledAccountError(account=account.account_id)
    expires_at_s = now_ms() // 1000 + call.context.token_lifetime_s
    return {
        "accountID": str(account.account_id),
        "accountRole": account.role,
        "token": tokens.issue_account_token(
            call.context.token_key, account.account_id, expires_at_s
        ),
        "expireAt": rfc3339(expires_at_s * 1000),
        "issuer": tokens.ISSUER,
    }


async def change_password(call: Call[ChangePassword, None]) -> None:
    """Replace the caller's password."""
    old, new = call.body.old_password, call.body.password
    if not await call.workers.is_password(call.account.password_hash, old):
        raise InvalidOldPasswordError()
    if old == new:
        raise InvalidNewPasswordError()
    _require_length(new)
    await call.context.registry.call(
        "update_password",
        account_id=call.account.account_id,
        old_hash=call.account.password_hash,
        new_hash=await call.workers.hash_password(new),
    )


def _require_length(password: str) -> None:
    if len(password) < _PASSWORD_MIN:
        reason = f"needs at least {_PASSWORD_MIN} characters"
        raise BadRequestError(FieldError("password", reason, "body"))


ROUTES: tuple[Route[Any, Any], ...] = (
    Route(
        "POST",
        "/register/admin",
        "CreateAccountByUsernameAndPassword",
        Auth.SETUP,
        register,
        body=Register,
    ),
    Route("PUT", "/login", "LoginByUsername", Auth.ANYBODY, login, body=Login),
    Route(
        "PUT",
        "/account",
        "UpdatePasswordByAccountID",
        Auth.ACCOUNT,
        change_password,
        body=ChangePassword,
    ),
)
