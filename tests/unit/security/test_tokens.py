"""Invalid tokens."""

from __future__ import annotations

import base64

import pytest

from fieldbrook.core.errors import InvalidTokenError
from fieldbrook.security.tokens import (
    TOKEN_LIMIT,
    TokenOwner,
    issue_publisher_token,
    read_any_token,
)

KEY = b"k" * 32


def test_a_token_that_is_nested_too_deeply_is_refused_before_it_is_decoded() -> None:
    head = base64.urlsafe_b64encode(b'{"alg":' + b"[" * 50_000).decode().rstrip("=")
    for token in (f"{head}.e30.aaaa", "." * (TOKEN_LIMIT + 1)):
        with pytest.raises(InvalidTokenError, match="too long"):
            read_any_token(KEY, token)


@pytest.mark.parametrize("token", ["\ud800", "ü.e30.aaaa", "a.b", "..", "\0"])
def test_a_token_of_any_characters_is_refused_as_one(token: str) -> None:
    with pytest.raises(InvalidTokenError, match="malformed"):
        read_any_token(KEY, token)


def test_a_token_of_this_node_is_far_below_the_limit() -> None:
    token = issue_publisher_token(KEY, (1 << 63) - 1)
    assert len(token) < TOKEN_LIMIT // 4
    assert read_any_token(KEY, token) == TokenOwner((1 << 63) - 1, is_account=False)
