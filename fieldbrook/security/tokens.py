"""Tokens of accounts and publishers: HS256 JSON Web Tokens of this node's own key.

Claims are upstream's (interface document, 4.2): `Payload` carries the decimal id, `iss`
the issuer, `exp` Unix seconds where the token expires; a publisher's token also carries
a random `jti`, so that a rotated token differs from the one before it. An account's token
carries `gen`, how often its logins were ended (by a new password, for example): tokens of an
older generation are worth nothing.

The library is imported at the first use: it brings the whole of `cryptography`, 22 MiB,
and the processes of projects read no token.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

from fieldbrook.core.errors import InvalidTokenError

TOKEN_LIMIT = 1_024  # characters; those of this node have less than a quarter
ALGORITHM = "HS256"
ISSUER = "fieldbrook"
PUBLISHER_ISSUER = "fb"  # short: see `PUBLISHER_TOKEN_LIMIT`
PUBLISHER_TOKEN_LIMIT = 159  # ESP32 firmware keeps the token in a 160-byte array


class AccountToken(NamedTuple):
    """What an account's token says: whose it is, and of which generation of logins."""

    account_id: int
    generation: int


def issue_account_token(key: bytes, account_id: int, expires_at_s: int, generation: int = 0) -> str:
    """A token for the management routes; `expires_at_s` is Unix seconds."""
    import jwt

    claims = {"Payload": str(account_id), "iss": ISSUER, "exp": expires_at_s}
    if generation:
        claims["gen"] = generation
    return jwt.encode(claims, key, ALGORITHM)


def issue_publisher_token(key: bytes, publisher_id: int) -> str:
    """A token for a device: no expiry, at most 159 characters."""
    import jwt

    claims = {
        "Payload": str(publisher_id),
        "iss": PUBLISHER_ISSUER,
        "jti": secrets.token_urlsafe(6),
    }
    return jwt.encode(claims, key, ALGORITHM)


class TokenOwner(NamedTuple):
    """Whose a token is: the id of an account, or of a publisher."""

    id: int
    is_account: bool


def read_any_token(key: bytes, token: str) -> TokenOwner:
    """Whom a token was issued for.

    Raises:
        InvalidTokenError: empty, malformed, of another algorithm, key or issuer, or
            expired; the description says which and never contains the token.
    """
    claims = _claims(key, token)
    return TokenOwner(_id_in(claims), claims["iss"] == ISSUER)


def read_account_token(key: bytes, token: str) -> AccountToken:
    """As `read_any_token`, for the token of an account, with the generation of logins that it
    belongs to."""
    claims = _claims(key, token)
    if claims["iss"] != ISSUER:
        raise InvalidTokenError(reason="token is a publisher's, not an account's")
    generation = claims.get("gen", 0)
    if not isinstance(generation, int):
        raise InvalidTokenError(reason="token carries no generation")
    return AccountToken(_id_in(claims), generation)


def _claims(key: bytes, token: str) -> dict[str, Any]:
    if not token:
        raise InvalidTokenError(reason="token is empty")
    # Before anything decodes it: deeply nested brackets end the decoder with an exception.
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
        raise InvalidTokenError(reason="token carries no id")
    return int(payload)
