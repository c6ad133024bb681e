"""Accounts: the first administrator and passwords."""

from __future__ import annotations

import re
import secrets
import string
import urllib.parse
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET

from fieldbrook.core.errors import (
    AccountNotFoundError,
    BadRequestError,
    FieldError,
    InvalidNewPasswordError,
    InvalidOldPasswordError,
)
from fieldbrook.core.model import ADMIN
from fieldbrook.gateway.management.framework.binding import Text
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.gateway.management.routes.accounts.access_keys import require_all_rights
from fieldbrook.gateway.management.routes.accounts.account_reply import AccountReply, account_reply
from fieldbrook.gateway.management.routes.accounts.logins import LoginReply, Password, login_reply
from fieldbrook.gateway.management.routes.accounts.operators import default_draft

_PASSWORD_MIN = 8
_GENERATED_LENGTH = 16
_ALPHABET = string.ascii_letters + string.digits
_WALLET = re.compile(r"0x[0-9a-f]{40}", re.IGNORECASE)


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """A new account; without a password, the node generates one and returns it once."""

    username: Text
    password: Password | None = None
    role: Literal["ADMIN", "DEVELOPER"] = "ADMIN"
    avatar_url: Annotated[str, msgspec.Meta(max_length=1_024)] = msgspec.field(
        name="avatarURL", default=""
    )


class ChangePassword(msgspec.Struct, frozen=True, kw_only=True):
    """The old password and the new one of the caller."""

    old_password: Password = msgspec.field(name="oldPassword")
    password: Password


async def register(call: Call[Register, None]) -> AccountReply:
    """Create an account; the first one needs the setup code, later ones an administrator."""
    given = call.body.password
    if given is not None:
        require_length(given)
    _require_name(call.body.username)
    _require_url(call.body.avatar_url)
    if call.body.role == ADMIN:
        require_all_rights(call, "creating an administrator")
    password = given or generated_password()
    if call.caller is None:
        call.audit_trail.set_username(call.body.username)
    account = await call.context.registry.call(
        "create_account",
        username=call.body.username,
        password_hash=await call.workers.hash_password(call.owner, password),
        role=call.body.role,
        only_if_first=call.caller is None,
        avatar=call.body.avatar_url,
        operator=await default_draft(call),
    )
    return account_reply(account, password=UNSET if given else password)


async def change_password(call: Call[ChangePassword, None]) -> LoginReply:
    """Replace the caller's password and end all their logins; the answer is a new login."""
    old, new = call.body.old_password, call.body.password
    username = call.account.username
    call.throttle.attempt(username, call.peer)
    if not await call.workers.is_password(call.account, old):
        raise InvalidOldPasswordError()
    call.throttle.succeeded(username, call.peer)
    if old == new:
        raise InvalidNewPasswordError()
    require_length(new)
    changed = await call.context.registry.call(
        "update_password",
        account_id=call.account.account_id,
        old_hash=call.account.password_hash,
        new_hash=await call.workers.hash_password(call.owner, new),
    )
    return login_reply(call, changed)


async def change_password_by_id(
    call: Call[ChangePassword, None],
) -> LoginReply:
    """Same as `PUT /account`; the id must be the caller's own."""
    account_id = call.id("accountID")
    if account_id != call.account.account_id:
        raise AccountNotFoundError(account=account_id)
    return await change_password(call)


def generated_password() -> str:
    """Return a random password."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_GENERATED_LENGTH))


def require_length(password: str) -> None:
    """Refuse a new password that is too short.

    Raises:
        BadRequestError: the password is too short.
    """
    if len(password) < _PASSWORD_MIN:
        reason = f"needs at least {_PASSWORD_MIN} characters"
        raise BadRequestError(FieldError("password", reason, "body"))


def _require_name(username: str) -> None:
    if not username.isprintable() or username != username.strip():
        reason = "must be printable and must not begin or end with a space"
    elif _WALLET.fullmatch(username):
        reason = "is the address of a wallet: its account is created when the wallet signs in"
    else:
        return
    raise BadRequestError(FieldError("username", reason, "body"))


def _require_url(url: str) -> None:
    try:
        parts = urllib.parse.urlsplit(url)
        valid = not url or (parts.scheme in ("http", "https") and bool(parts.hostname))
    except ValueError:
        valid = False
    if not valid or not url.isprintable():
        raise BadRequestError(FieldError("avatarURL", "is not an http or https URL", "body"))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST", "/register/admin", "CreateAccountByUsernameAndPassword", register, auth=Auth.SETUP
    ),
    Route("PUT", "/account", "UpdatePasswordByAccountID", change_password),
    Route("PUT", "/account/{accountID}", "UpdatePasswordByAccountID", change_password_by_id),
)
