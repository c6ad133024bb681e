"""Tokens of management requests."""

from __future__ import annotations

from typing import Any

import jwt
import pytest

from fieldbrook.core.clock import now_ms
from fieldbrook.gateway.management.framework.route import Auth
from fieldbrook.gateway.management.route_table import ROUTES
from fieldbrook.security import tokens
from tests.support.management import (
    KEY,
    V0,
    Server,
    User,
)


def _token(key: bytes = KEY, algorithm: str = "HS256", **claims: Any) -> str:
    base = {"Payload": "5", "iss": tokens.ISSUER, "exp": now_ms() // 1000 + 60}
    return jwt.encode({**base, **claims}, key or "", algorithm)


BAD_TOKENS = {
    "none": "",
    "garbage": "abc",
    "not ascii": "\xff\xfe",
    "expired": _token(exp=5),
    "algorithm none": _token(b"", "none"),
    "another algorithm": _token(b"k" * 64, "HS512"),
    "another key": _token(b"x" * 32),
    "another issuer": _token(iss="other"),
    "a publisher's": tokens.issue_publisher_token(KEY, 5),
    "an id that is text": _token(Payload="abc"),
    "an id that is a number": _token(Payload=5),
}


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_a_token_that_is_not_an_accounts_is_refused(server: Server, name: str) -> None:
    token = BAD_TOKENS[name]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    reply = server.send("GET", f"{V0}/project", headers=headers)
    assert (reply.status, reply.key) == (401, "InvalidToken")
    assert not token or token not in reply.body.decode()


def test_every_route_but_few_refuses_a_call_without_a_token_before_anything_else(
    server: Server,
) -> None:
    open_routes = []
    for route in ROUTES:
        path = V0 + route.pattern.replace("{", "").replace("}", "")
        if route.auth in (Auth.ACCOUNT, Auth.ADMIN):
            reply = server.send(route.method, path, "not json")
            assert (reply.status, reply.key) == (401, "InvalidToken"), route
        else:
            open_routes.append(route.pattern)
    wallet = ["/login/wallet/nonce", "/login/wallet", "/login/eth"]
    facts = [f"/configuration/{name}" for name in ("dashboard", "eth_client", "chain_config")]
    assert open_routes == ["/register/admin", "/login", *wallet, *facts]


def test_the_token_of_an_account_that_is_gone_is_refused(server: Server) -> None:
    reply = server.send("GET", f"{V0}/project", headers={"Authorization": _token(Payload="999")})
    assert (reply.status, reply.key) == (404, "AccountNotFound")


def test_a_token_in_the_query_wins_over_the_header(server: Server, ada: User) -> None:
    path = f"{V0}/project?authorization="
    good, bad = ada.token, {"Authorization": "nonsense"}
    assert server.send("GET", path + good, headers=bad).status == 200
    headers = {"Authorization": ada.token}
    assert server.send("GET", f"{path}nonsense", headers=headers).status == 401
