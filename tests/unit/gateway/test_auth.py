"""The account of a request's token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest

from fieldbrook.core.clock import now_ms
from fieldbrook.core.errors import AccountNotFoundError, InvalidTokenError, NoAdminPermissionError
from fieldbrook.core.model import ADMIN, DEVELOPER
from fieldbrook.gateway.auth import (
    Caller,
    caller_from_token,
    request_token,
    require_admin,
    require_setup_code,
)
from fieldbrook.security import tokens
from fieldbrook.storage.registry.service import RegistryWriter

KEY = b"k" * 32
NOW_S = now_ms() // 1000
LOGIN = tokens.Login("login", NOW_S)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RegistryWriter]:
    writer = RegistryWriter(tmp_path / "registry", 4 << 20, now_ms, KEY)
    yield writer
    writer.close()


def caller(
    writer: RegistryWriter,
    token: str,
    *,
    key: bytes = KEY,
    now_s: int = NOW_S,
    lifetime_s: int = 60,
) -> Caller:
    return caller_from_token(writer.reader(), key, token, now_s=now_s, lifetime_s=lifetime_s)


@pytest.mark.parametrize(
    ("query", "header", "token"),
    [
        (None, "Bearer X", "X"),
        (None, "BearerX", "X"),
        (None, "X", "X"),
        (None, "  Bearer   X  ", "X"),
        ("Q", "Bearer X", "Q"),
        ("Bearer Q", None, "Q"),
        ("", "X", "X"),
        (None, "Bearer XBearer", "XBearer"),
        (None, None, ""),
        (None, "Bearer", ""),
    ],
)
def test_a_token_is_found_as_clients_send_it(
    query: str | None, header: str | None, token: str
) -> None:
    assert request_token(query, header) == token


def test_an_account_is_known_by_its_token(writer: RegistryWriter) -> None:
    account = writer.create_account("ada", "h", ADMIN)
    token = tokens.issue_account_token(KEY, account.account_id, NOW_S + 3_600, LOGIN)
    assert caller(writer, token) == Caller(account, login=LOGIN, expires_at_s=NOW_S + 3_600)


def test_a_login_that_was_ended_is_refused_and_others_of_the_account_are_not(
    writer: RegistryWriter,
) -> None:
    account = writer.create_account("ada", "h", ADMIN)
    expires_at_s = NOW_S + 3_600
    ended, other = (
        tokens.issue_account_token(KEY, account.account_id, expires_at_s, login)
        for login in (LOGIN, tokens.Login("login", LOGIN.began_s + 1))
    )
    writer.end_login(LOGIN.login_id, LOGIN.began_s, expires_at_s * 1000)
    with pytest.raises(InvalidTokenError, match="log in again"):
        caller(writer, ended)
    assert caller(writer, other).account == account


def test_a_long_token_is_refused_when_its_login_can_be_forgotten_after_the_lifetime_was_lowered(
    writer: RegistryWriter,
) -> None:
    account = writer.create_account("ada", "h", ADMIN)
    week_s, day_s = 7 * tokens.RENEWABLE_S, tokens.RENEWABLE_S
    token = tokens.issue_account_token(KEY, account.account_id, NOW_S + week_s, LOGIN)
    assert caller(writer, token, now_s=NOW_S + day_s, lifetime_s=week_s).account == account
    assert caller(writer, token, now_s=NOW_S + day_s - 1).account == account
    with pytest.raises(InvalidTokenError, match="log in again"):
        caller(writer, token, now_s=NOW_S + day_s)


def test_a_token_of_a_version_without_logins_is_accepted(writer: RegistryWriter) -> None:
    account = writer.create_account("ada", "h", ADMIN)
    expires_at_s = now_ms()  # far in the future, in seconds
    claims = {"Payload": str(account.account_id), "iss": tokens.ISSUER, "exp": expires_at_s}
    token = jwt.encode(claims, KEY, tokens.ALGORITHM)
    assert caller(writer, token) == Caller(account, expires_at_s=expires_at_s)


def test_a_token_of_nobody_is_refused(writer: RegistryWriter) -> None:
    token = tokens.issue_account_token(KEY, 5, NOW_S + 3_600, LOGIN)
    with pytest.raises(AccountNotFoundError):
        caller(writer, token)
    with pytest.raises(InvalidTokenError):
        caller(writer, token, key=b"x" * 32)


@pytest.mark.parametrize("given", [None, "", "wrong", "code ", "c\xf6de"])
def test_only_the_setup_code_itself_lets_in(given: str | None) -> None:
    require_setup_code("code", "code")
    with pytest.raises(NoAdminPermissionError):
        require_setup_code(given, "code")


def test_without_a_setup_code_nobody_gets_in() -> None:
    with pytest.raises(NoAdminPermissionError):
        require_setup_code("", "")


def test_a_developer_is_no_administrator(writer: RegistryWriter) -> None:
    require_admin(writer.create_account("root", "h", ADMIN))
    with pytest.raises(NoAdminPermissionError):
        require_admin(writer.create_account("dev", "h", DEVELOPER))
