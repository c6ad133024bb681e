"""Signing in with a wallet over real HTTP."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.core.model import DEVELOPER, ENABLED
from fieldbrook.gateway.management.sign_in.throttle import PER_NAME
from fieldbrook.gateway.management.sign_in.wallet import WalletPolicy
from tests.support.management import V0, Reply, Server, serving, started
from tests.unit.gateway.management.sign_in.test_wallet import (
    ADDRESS,
    ISSUED_MS,
    SAMPLE,
    SIGNATURE,
    signed,
)

NOW_MS = ISSUED_MS + 1_000


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    policy = getattr(request, "param", WalletPolicy(whitelist=frozenset({"*"})))
    server, context = started(tmp_path, lambda: NOW_MS)
    context = dataclasses.replace(context, wallets=policy)
    with serving(context) as port:
        server.port = port
        yield server
    server.writer.close()


def policy(**fields: Any) -> pytest.MarkDecorator:
    """Run a test with this policy."""
    return pytest.mark.parametrize("server", [WalletPolicy(**fields)], indirect=True)


def login(
    server: Server,
    message: str,
    signature: str,
    path: str = "/login/wallet",
    **headers: str,
) -> Reply:
    body = json.dumps({"message": message, "signature": signature})
    sent = {"Content-Type": "text/plain", "Host": "localhost:3000", **headers}
    return server.send("PUT", V0 + path, body, sent)


def with_nonce(server: Server) -> str:
    given = server.send("GET", f"{V0}/login/wallet/nonce")
    assert given.status == 200
    assert given.json["expireAt"] == "2023-11-14T22:18:21.000Z"
    return SAMPLE.replace("abcdEFGH1234", given.json["nonce"])


@pytest.mark.parametrize("path", ["/login/wallet", "/login/eth"])
def test_a_wallet_signs_in_once_with_a_nonce(server: Server, path: str) -> None:
    message = with_nonce(server)
    reply = login(server, message, signed(message), path)
    assert reply.status == 200, reply.body
    assert set(reply.json) == {"accountID", "accountRole", "token", "expireAt", "issuer"}
    assert reply.json["accountRole"] == "DEVELOPER"
    again = login(server, message, signed(message))
    assert (again.status, again.key) == (401, "InvalidEthLoginMessage")
    assert "used before" in again.json["desc"]
    account = server.writer.reader().account_named(ADDRESS.lower())
    assert account is not None
    assert str(account.account_id) == reply.json["accountID"]
    assert (account.role, account.state) == (DEVELOPER, ENABLED)
    second = with_nonce(server)
    assert login(server, second, signed(second)).json["accountID"] == reply.json["accountID"]


@policy(nonce_required=False, whitelist=frozenset({ADDRESS.lower()}))
def test_the_sample_of_other_libraries_signs_in_once_where_nonces_are_the_clients(
    server: Server,
) -> None:
    assert login(server, SAMPLE, SIGNATURE).status == 200
    assert login(server, SAMPLE, SIGNATURE).key == "InvalidEthLoginMessage"


def test_another_signature_is_refused_and_the_nonce_stays_good(server: Server) -> None:
    message = with_nonce(server)
    refused = login(server, message, SIGNATURE)
    assert (refused.status, refused.key) == (401, "InvalidEthLoginSignature")
    stranger = login(server, message, signed(message, b"\x22" * 32))
    assert stranger.key == "InvalidEthLoginSignature"
    assert login(server, message, signed(message)).status == 200


@policy()
def test_without_a_white_list_only_wallets_that_have_an_account_sign_in(
    server: Server,
) -> None:
    message = with_nonce(server)
    refused = login(server, message, signed(message))
    assert (refused.status, refused.key) == (403, "WhiteListForbidden")
    server.writer.create_account(ADDRESS.lower(), "", DEVELOPER)
    assert login(server, message, signed(message)).status == 200


@policy(whitelist=frozenset({"*"}), domains=frozenset({"studio.example"}))
def test_a_message_for_another_page_is_refused(server: Server) -> None:
    message = with_nonce(server)
    assert login(server, message, signed(message)).key == "InvalidEthLoginMessage"
    ours = message.replace("localhost:3000 wants", "studio.example wants")
    assert login(server, ours, signed(ours)).status == 200


def test_a_message_for_another_site_signs_nobody_in_by_default(server: Server) -> None:
    for host in ("localhost", "localhost:3001", f"127.0.0.1:{server.port}", "localhost:3000.evil"):
        message = with_nonce(server)
        refused = login(server, message, signed(message), Host=host)
        assert (refused.status, refused.key) == (401, "InvalidEthLoginMessage")
        assert "wallet_domains" in refused.json["desc"]
        assert "localhost:3000" in refused.json["desc"]
    phished = with_nonce(server).replace("localhost:3000 wants", "evil.example wants")
    assert login(server, phished, signed(phished)).status == 401
    ours = message.replace("localhost:3000 wants", f"127.0.0.1:{server.port} wants")
    assert login(server, ours, signed(ours), Host=f"127.0.0.1:{server.port}").status == 200


def test_what_a_proxy_says_of_the_host_does_not_count(server: Server) -> None:
    message = with_nonce(server).replace("localhost:3000 wants", "evil.example wants")
    headers = {"X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example"}
    assert login(server, message, signed(message), **headers).status == 401


def test_a_wallets_account_has_no_password(server: Server) -> None:
    message = with_nonce(server)
    login(server, message, signed(message))
    for password in ("", "x"):
        body = json.dumps({"username": ADDRESS.lower(), "password": password})
        assert server.send("PUT", f"{V0}/login", body).status in (400, 401)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"signature": "x"}, "message"),
        ({"message": "x"}, "signature"),
        ({"message": "", "signature": "x"}, "message"),
        ({"message": 1, "signature": "x"}, "message"),
        ({"message": "x" * 8_193, "signature": "x"}, "message"),
        ({"message": "x", "signature": "x" * 16_385}, "signature"),
    ],
)
def test_an_invalid_login_is_refused(server: Server, body: Any, field: str) -> None:
    for path in ("/login/wallet", "/login/eth"):
        assert list(server.send("PUT", V0 + path, json.dumps(body)).fields) == [field]


def test_failed_signatures_are_slowed_down(server: Server) -> None:
    keys = []
    for _ in range(PER_NAME.burst + 1):
        message = with_nonce(server)
        keys.append(login(server, message, SIGNATURE).key)
    assert keys == ["InvalidEthLoginSignature"] * PER_NAME.burst + ["TooManyAttempts"]
