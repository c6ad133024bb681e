"""Tokens of accounts and publishers: JSON Web Tokens, signed with this node's key (HS256).

The claims are those of the interface document, 4.2. `Payload` is the decimal id, `iss` the
issuer, and `exp` the expiry in Unix seconds, if the token expires. A publisher's token also
has a random `jti`, so that a rotated token differs from the previous one. An account's token
has `gen`, the number of times that all its logins were ended, e.g. by a new password; tokens
of an older generation are invalid. It also has `jti`, the id of its login, and `auth_time`, the
time of that login in Unix seconds (OpenID Connect's name); a renewed token keeps both.

The library is imported at its first use, because it imports all of `cryptography` (22 MiB), and
workers read no tokens.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

from fieldbrook.core.errors import InvalidTokenError

TOKEN_LIMIT = 1_024  # characters; tokens of this node are shorter than a quarter of this
ALGORITHM = "HS256"
ISSUER = "fieldbrook"
PUBLISHER_ISSUER = "fb"  # short because of `PUBLISHER_TOKEN_LIMIT`
RENEWABLE_S = 24 * 3600
"""How long after the check of the password a login can be renewed, in seconds."""
_LOGIN_ID_BYTES = 12
PUBLISHER_TOKEN_LIMIT = 159  # ESP32 firmware keeps the token in a 160-byte array


class Login(NamedTuple):
    """One login of an account. Its first token and all renewed ones belong to it."""

    login_id: str
    began_s: int
    """When the password or the wallet's signature was checked, in Unix seconds."""


def new_login(now_s: int) -> Login:
    """Make a login that begins now, with a random id."""
    return Login(secrets.token_urlsafe(_LOGIN_ID_BYTES), now_s)


def last_expiry_s(login: Login, lifetime_s: int) -> int:
    """Return the time at which the last token of a login expires, in Unix seconds.

    `lifetime_s` is the setting `token_lifetime_s`. A token that was issued with a higher value of
    the setting still expires at this time.
    """
    return login.began_s + max(RENEWABLE_S, lifetime_s)


class AccountToken(NamedTuple):
    """The content of an account's token: the account's id, the generation of its logins, and the
    login.

    `login` is None for a token of fieldbrook 0.1, which had none. `expires_at_s` is Unix seconds.
    """

    account_id: int
    generation: int
    login: Login | None
    expires_at_s: int


def issue_account_token(
    key: bytes, account_id: int, expires_at_s: int, login: Login, generation: int = 0
) -> str:
    """Make a token for the management routes; `expires_at_s` is Unix seconds."""
    import jwt

    claims: dict[str, str | int] = {
        "Payload": str(account_id),
        "iss": ISSUER,
        "exp": expires_at_s,
        "jti": login.login_id,
        "auth_time": login.began_s,
    }
    if generation:
        claims["gen"] = generation
    return jwt.encode(claims, key, ALGORITHM)


def issue_publisher_token(key: bytes, publisher_id: int) -> str:
    """Make a token for a device: it has no `exp`, and at most 159 characters."""
    import jwt

    claims = {
        "Payload": str(publisher_id),
        "iss": PUBLISHER_ISSUER,
        "jti": secrets.token_urlsafe(6),
    }
    return jwt.encode(claims, key, ALGORITHM)


class TokenOwner(NamedTuple):
    """The owner of a token: the id of an account or of a publisher."""

    id: int
    is_account: bool


def read_any_token(key: bytes, token: str) -> TokenOwner:
    """Verify a token of an account or of a publisher.

    Returns:
        The owner of the token.

    Raises:
        InvalidTokenError: the token is empty, malformed, expired, or of another algorithm, key
            or issuer; the description says which and never contains the token.
    """
    claims = _claims(key, token)
    return TokenOwner(_id_in(claims), claims["iss"] == ISSUER)


def read_account_token(key: bytes, token: str) -> AccountToken:
    """Verify a token of an account.

    Returns:
        The content of the token. The caller must compare the generation with the account's current
        one, and check whether the login has been ended.

    Raises:
        InvalidTokenError: as `read_any_token`, and for the token of a publisher.
    """
    claims = _claims(key, token)
    if claims["iss"] != ISSUER:
        raise InvalidTokenError(reason="token is a publisher's, not an account's")
    generation = claims.get("gen", 0)
    if not isinstance(generation, int):
        raise InvalidTokenError(reason="token has no valid generation")
    expires_at_s = claims.get("exp")
    if not isinstance(expires_at_s, int):
        raise InvalidTokenError(reason="token has no valid time of expiry")
    return AccountToken(_id_in(claims), generation, _login_in(claims), expires_at_s)


def _claims(key: bytes, token: str) -> dict[str, Any]:
    if not token:
        raise InvalidTokenError(reason="token is empty")
    # Checked before decoding: deeply nested brackets would raise RecursionError in the decoder.
    if len(token) > TOKEN_LIMIT or not token.isascii():
        raise InvalidTokenError(reason="token is malformed: too long, or not ASCII")
    import jwt

    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[ALGORITHM],
            issuer=[ISSUER, PUBLISHER_ISSUER],
            options={"require": ["iss"]},
        )
    except jwt.ExpiredSignatureError:
        raise InvalidTokenError(reason="token is expired") from None
    except jwt.InvalidAlgorithmError:
        raise InvalidTokenError(reason=f"token is not signed with {ALGORITHM}") from None
    except jwt.InvalidSignatureError:
        raise InvalidTokenError(reason="signature is invalid") from None
    except jwt.InvalidIssuerError:
        raise InvalidTokenError(reason="issuer is not this node") from None
    except jwt.PyJWTError as error:
        raise InvalidTokenError(reason=f"token is malformed: {error}") from None
    return claims


def _id_in(claims: dict[str, Any]) -> int:
    payload = claims.get("Payload")
    if not isinstance(payload, str) or not payload.isdecimal():
        raise InvalidTokenError(reason="token has no id")
    return int(payload)


def _login_in(claims: dict[str, Any]) -> Login | None:
    login_id, began_s = claims.get("jti"), claims.get("auth_time")
    if not isinstance(login_id, str) or not isinstance(began_s, int):
        return None
    return Login(login_id, began_s)
